"""How packed rows attend to their contexts where these lie in the pool, without copying or padding the pool.

Rows that read one token (decoding) and whose slots lie near each other are one call on a view of the pool; a row that
reads several tokens is a call of its own. Query heads that share a key-value head ride along as further queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

_STEP = 32  # key ranges are rounded up to this many positions, which the CPU's kernels prefer
_CALL_COST = 384  # one more attention call costs about as much as reading this many more keys


class Row(NamedTuple):
    """`n` new tokens of the context in `slot`, which are its positions `start`..`start + n - 1`."""

    slot: int
    start: int
    n: int

    @property
    def end(self) -> int:
        return self.start + self.n


class _Call(NamedTuple):
    """One attention call: packed tokens `first`..`first + n - 1` on slots `low`..`high - 1` and their first `keys` positions.

    `inside_n` is each token's offset in the slots when some of them have no token here, else None.
    """

    first: int
    n: int
    low: int
    high: int
    keys: int
    inside_n: Tensor | None
    mask: Tensor  # decoding [slots, 1, 1, K], else [n, K]; 0 where visible, -inf elsewhere


class Plan:
    """The attention calls of one batch of rows, the same in every layer. Rows with one token each must be sorted by slot."""

    def __init__(self, rows: Sequence[Row], n_positions: int, rows_R: Tensor, dtype: torch.dtype) -> None:
        """`n_positions` per slot in the pool; `rows_R` are the packed positions that this plan's tokens have elsewhere."""
        self.rows_R = rows_R
        self.dtype, self.device = dtype, rows_R.device
        places = [row.slot * n_positions + t for row in rows for t in range(row.start, row.end)]
        self.places_N = torch.tensor(places, device=self.device)
        self.calls: list[_Call] = []
        first, singles = 0, list[Row]()
        for row in rows:
            if row.n == 1:
                if singles and (row.slot <= singles[-1].slot or not _worth_joining(singles, row)):
                    self.calls.append(self._decoding(singles, first - len(singles)))
                    singles = []
                singles.append(row)
            else:
                if singles:
                    self.calls.append(self._decoding(singles, first - len(singles)))
                    singles = []
                self.calls.append(self._reading(row, first))
            first += row.n
        if singles:
            self.calls.append(self._decoding(singles, first - len(singles)))

    def attend(self, query_NHD: Tensor, pool: Tensor) -> Tensor:
        """Attention outputs [N, H * D] of the queries over the pool's layer [S, T, 2 * kv_heads, D]."""
        outs = [self._call(call, query_NHD[call.first : call.first + call.n], pool) for call in self.calls]
        return (outs[0] if len(outs) == 1 else torch.cat(outs)).flatten(1)

    def _call(self, call: _Call, query_nHD: Tensor, pool: Tensor) -> Tensor:
        n, heads, head_dim = query_nHD.shape
        kv_heads = pool.shape[2] // 2
        context = pool[call.low : call.high, : call.keys].transpose(1, 2)  # [slots, 2 * kv_heads, K, D]
        keys, values = context[:, :kv_heads], context[:, kv_heads:]
        grouped = query_nHD.reshape(n, kv_heads, heads // kv_heads, head_dim)
        if call.mask.dim() == 2:
            queries = grouped.transpose(0, 1).reshape(1, kv_heads, -1, head_dim)
            mask = call.mask.repeat_interleave(heads // kv_heads, 0)
            out = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
            return out[0].view(kv_heads, n, heads // kv_heads, head_dim).transpose(0, 1).reshape(n, heads, head_dim)
        if call.inside_n is None:
            return F.scaled_dot_product_attention(grouped, keys, values, attn_mask=call.mask).view(n, heads, head_dim)
        spread = grouped.new_zeros(call.high - call.low, *grouped.shape[1:])
        spread[call.inside_n] = grouped
        out = F.scaled_dot_product_attention(spread, keys, values, attn_mask=call.mask)
        return out[call.inside_n].reshape(n, heads, head_dim)

    def _decoding(self, rows: Sequence[Row], first: int) -> _Call:
        low, high = rows[0].slot, rows[-1].slot + 1
        keys = _rounded(max(row.end for row in rows))
        ends = [1] * (high - low)  # a slot without a token here sees one position: its output is not read, but must exist
        for row in rows:
            ends[row.slot - low] = row.end
        hidden = torch.arange(keys, device=self.device) >= torch.tensor(ends, device=self.device)[:, None]
        inside = None if high - low == len(rows) else torch.tensor([row.slot - low for row in rows], device=self.device)
        return _Call(first, len(rows), low, high, keys, inside, self._mask(hidden)[:, None, None])

    def _reading(self, row: Row, first: int) -> _Call:
        keys = _rounded(row.end)
        hidden = torch.arange(keys, device=self.device) > torch.arange(row.start, row.end, device=self.device)[:, None]
        return _Call(first, row.n, row.slot, row.slot + 1, keys, None, self._mask(hidden))

    def _mask(self, hidden: Tensor) -> Tensor:
        return torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, -torch.inf)


def _worth_joining(rows: Sequence[Row], row: Row) -> bool:
    """Whether one call for all costs less than two, in keys read: every slot in between is read to the longest end."""
    low, high, longest = rows[0].slot, rows[-1].slot + 1, max(r.end for r in rows)
    together = (row.slot + 1 - low) * max(longest, row.end)
    return together <= (high - low) * longest + row.end + _CALL_COST


def _rounded(keys: int) -> int:
    return -(-keys // _STEP) * _STEP
