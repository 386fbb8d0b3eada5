"""Dense batches out of contexts of different lengths, with correct positions and attention.

A row holds one context, or (attention-only models) several: positions then restart at 0 in each segment and
`Batch.attention_mask` keeps attention inside it. Contexts that begin alike, as those of one role in a chat do, share
that beginning: it stands once at the start of their row, all of them attend to it, and their positions go on after it.
Rows are padded on the right, so a causal model never sees padding before a token. Only action tokens are trained: they
are addressed by flat indices, so no mask is ever multiplied into a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcr_core.contexts import Context, contexts_of
from rlcr_core.errors import ConfigError, DataError

__all__ = ["Batch", "Context", "contexts_of", "pack", "padding_share"]

PAD_ID = 0
PAD_SEGMENT = -1
SHARED_SEGMENT = -2
SHARED_TOKENS = 32  # a shorter common beginning is not looked for
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Dense rows [B, T] and the action tokens [N] in them; `action_index_N` is b * T + t, predicted from t - 1."""

    input_ids_BT: Tensor
    position_ids_BT: Tensor
    segment_ids_BT: Tensor  # number of the context within its row, -1: padding, -2: beginning that all of the row share
    action_index_N: Tensor
    target_ids_N: Tensor
    behaviour_N: Tensor
    advantage_N: Tensor
    rollout_N: Tensor
    agent_N: Tensor
    version_N: Tensor
    label_N: Tensor  # rlcr_core.labels, 0 where the context has none
    one_per_row: bool

    @property
    def n_tokens(self) -> int:
        """Number of action tokens N."""
        return self.action_index_N.numel()

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        moved: dict[str, Any] = {name: v.to(device) for name, v in values.items() if isinstance(v, Tensor)}
        return replace(self, **moved)

    def attention_mask(self) -> Tensor | None:
        """Bool [B, 1, T, T], True = attend: causal, inside one segment and to the shared beginning.

        None when plain causal attention is enough.
        """
        if self.one_per_row:
            return None
        same_BTT = self.segment_ids_BT[:, :, None] == self.segment_ids_BT[:, None, :]
        # Padding is a segment of its own: a position that attends to nothing would turn softmax into NaN.
        shared_B1T = (self.segment_ids_BT == SHARED_SEGMENT)[:, None]
        return (same_BTT | shared_B1T).tril()[:, None]


def pack(contexts: Sequence[Context], max_batch_tokens: int, one_per_row: bool) -> list[Batch]:
    """Batches with rows sorted by length, longest first, each of at most `max_batch_tokens` positions (B * T).

    A longer context goes alone. With `one_per_row` false, rows are filled first-fit-decreasing with several contexts:
    rows as long as the longest of them or, where they share a beginning, up to four times that beginning. Every context
    is in exactly one batch; a batch's action tokens keep the order of time inside each context. Raises DataError for an
    empty or misaligned context, ConfigError for a limit below 1.
    """
    if max_batch_tokens < 1:
        raise ConfigError(f"A batch needs room for a token, got {max_batch_tokens}; raise update.micro_batch_tokens.")
    for context in contexts:
        _check_aligned(context)
    lengths = np.array([len(context.ids) for context in contexts], np.int64)
    order = np.argsort(-lengths, kind="stable")
    n_alone = len(order) if one_per_row else int((lengths > max_batch_tokens).sum())
    rows = [_Row([int(c)], 0, int(lengths[c])) for c in order[:n_alone]]
    for members, shared in _beginnings(contexts, order[n_alone:]):
        capacity = max(int(lengths[members[0]]), min(max_batch_tokens, 4 * shared))
        for row in _first_fit(lengths - shared, members, capacity - shared):
            n = shared if len(row) > 1 else 0
            rows.append(_Row(row, n, n + sum(int(lengths[c]) - n for c in row)))
    rows.sort(key=lambda row: -row.used)
    batches = []
    start = 0
    while start < len(rows):
        end = start + max(1, max_batch_tokens // rows[start].used)
        batches.append(_batch(contexts, lengths, rows[start:end], one_per_row))
        start = end
    return batches


class _Row(NamedTuple):
    """Contexts of one row, the number of tokens at their beginning that stand in it once, and its positions in use."""

    members: list[int]
    shared: int
    used: int


def _check_aligned(context: Context) -> None:
    n = len(context.ids)
    sizes = (len(context.is_action), len(context.behaviour_logprobs), len(context.versions))
    is_labelled = context.labels is None or len(context.labels) == n
    if n == 0 or sizes != (n, n, n) or not is_labelled or context.is_action[0]:
        raise DataError(
            f"The tokens of {context.name} cannot be packed: {n} ids with {sizes} action marks, logprobs and versions; "
            "expected equal numbers, at least one, the first an observation token; exclude the rollout."
        )


def _beginnings(contexts: Sequence[Context], order: IntArray) -> list[tuple[IntArray, int]]:
    """Contexts that begin with the same tokens, in the given order, and how many tokens; 0 for those that share none.

    The last observation token before the first action is never shared: what predicts an action stands just before it.
    """
    alike: dict[bytes, list[int]] = {}
    for c in order:
        ids = contexts[c].ids
        first_action = int(np.argmax(contexts[c].is_action)) if contexts[c].is_action.any() else len(ids)
        alike.setdefault(ids[:SHARED_TOKENS].tobytes() if first_action > SHARED_TOKENS else b"", []).append(int(c))
    found = []
    for key, members in alike.items():
        shared = 0
        if key and len(members) > 1:
            shared = min(_common(contexts[members[0]], contexts[c]) for c in members)
        found.append((np.array(members, np.int64), shared))
    return found


def _common(a: Context, b: Context) -> int:
    """How many tokens two contexts share at their beginning, before the token that predicts the first action of either."""
    n = min(int(np.argmax(c.is_action)) - 1 if c.is_action.any() else len(c.ids) - 1 for c in (a, b))
    differs = a.ids[:n] != b.ids[:n]
    return int(np.argmax(differs)) if differs.any() else n


def _first_fit(sizes: IntArray, order: IntArray, capacity: int) -> list[list[int]]:
    """First-fit-decreasing of `order`, longest first, into rows of this capacity."""
    if not len(order):
        return []
    free = np.full(len(order), capacity, np.int64)  # an unopened row is a row with everything free
    rows: list[list[int]] = [[] for _ in order]
    closed = 0
    shortest = sizes[order[-1]]
    for c in order:
        row = closed + int(np.argmax(free[closed:] >= sizes[c]))
        rows[row].append(int(c))
        free[row] -= sizes[c]
        while closed < len(free) and free[closed] < shortest:
            closed += 1
    return [row for row in rows if row]


def _pieces(lengths: IntArray, rows: Sequence[_Row]) -> NDArray[np.int64]:
    """[P, 5] of every piece in the rows' order: row, context, first token, end, segment."""
    pieces: list[tuple[int, int, int, int, int]] = []
    for r, row in enumerate(rows):
        if row.shared:
            pieces.append((r, row.members[0], 0, row.shared, SHARED_SEGMENT))
        pieces += [(r, c, row.shared, int(lengths[c]), k) for k, c in enumerate(row.members)]
    return np.array(pieces, np.int64)


def _batch(contexts: Sequence[Context], lengths: IntArray, rows: Sequence[_Row], one_per_row: bool) -> Batch:
    width = rows[0].used
    row_P, number_P, first_P, end_P, segment_P = _pieces(lengths, rows).T
    members = [contexts[c] for c in number_P]
    slices = [slice(first, end) for first, end in zip(first_P.tolist(), end_P.tolist(), strict=True)]
    sizes = end_P - first_P
    begins = np.cumsum(sizes) - sizes  # of each piece in the concatenation
    opens = np.searchsorted(row_P, np.arange(len(rows)))  # each row's first piece
    flat = np.arange(int(sizes.sum())) + np.repeat(row_P * width - begins[opens[row_P]], sizes)
    # Padding takes its place in the row: with one context per row positions are then a plain range everywhere.
    positions_BT = np.tile(np.arange(width), (len(rows), 1))
    positions_BT.reshape(-1)[flat] = np.arange(len(flat)) - np.repeat(begins - first_P, sizes)
    ids_BT = np.full((len(rows), width), PAD_ID, np.int64)
    segments_BT = np.full((len(rows), width), PAD_SEGMENT, np.int64)

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(c, name)[part] for c, part in zip(members, slices, strict=True)])

    unlabelled = np.zeros(int(lengths.max()), np.int32)
    labels = [unlabelled[: len(c.ids)] if c.labels is None else c.labels for c in members]
    label_L = np.concatenate([values[part] for values, part in zip(labels, slices, strict=True)])
    ids_L = joined("ids").astype(np.int64)
    ids_BT.reshape(-1)[flat] = ids_L
    segments_BT.reshape(-1)[flat] = np.repeat(segment_P, sizes)
    action_L = joined("is_action")

    def of_actions(values: list[float] | list[int], dtype: type[np.generic]) -> Tensor:
        return torch.from_numpy(np.repeat(np.array(values, dtype), sizes)[action_L])

    return Batch(
        input_ids_BT=torch.from_numpy(ids_BT),
        position_ids_BT=torch.from_numpy(positions_BT),
        segment_ids_BT=torch.from_numpy(segments_BT),
        action_index_N=torch.from_numpy(flat[action_L]),
        target_ids_N=torch.from_numpy(ids_L[action_L]),
        behaviour_N=torch.from_numpy(joined("behaviour_logprobs")[action_L]),
        advantage_N=of_actions([c.advantage for c in members], np.float32),
        rollout_N=of_actions([c.rollout for c in members], np.int64),
        agent_N=of_actions([c.agent for c in members], np.int64),
        version_N=torch.from_numpy(joined("versions").astype(np.int64)[action_L]),
        label_N=torch.from_numpy(label_L.astype(np.int64)[action_L]),
        one_per_row=one_per_row,
    )


def padding_share(batches: Sequence[Batch]) -> float:
    """Share of the positions of these batches that hold no token; 0 for no batch."""
    total = sum(batch.segment_ids_BT.numel() for batch in batches)
    padded = sum(int((batch.segment_ids_BT == PAD_SEGMENT).sum()) for batch in batches)
    return padded / total if total else 0.0
