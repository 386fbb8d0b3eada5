"""Dense batches out of contexts of different lengths, with correct positions and attention.

A row holds one context, or (attention-only models) several: positions then restart at 0 in each segment and
`Batch.attention_mask` keeps attention inside it. Rows are padded on the right, so a causal model never sees padding
before a token. Only action tokens are trained: they are addressed by flat indices, so no mask is ever multiplied into
a loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcr_core.contexts import Context, contexts_of
from rlcr_core.errors import ConfigError, DataError

__all__ = ["Batch", "Context", "contexts_of", "pack", "padding_share"]

PAD_ID = 0
PAD_SEGMENT = -1
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Dense rows [B, T] and the action tokens [N] in them; `action_index_N` is b * T + t, predicted from t - 1."""

    input_ids_BT: Tensor
    position_ids_BT: Tensor
    segment_ids_BT: Tensor  # number of the context within its row, -1: padding
    action_index_N: Tensor
    target_ids_N: Tensor
    behaviour_N: Tensor
    advantage_N: Tensor
    rollout_N: Tensor
    agent_N: Tensor
    version_N: Tensor
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
        """Bool [B, 1, T, T], True = attend: causal, inside one segment; None when plain causal attention is enough."""
        if self.one_per_row:
            return None
        same_BTT = self.segment_ids_BT[:, :, None] == self.segment_ids_BT[:, None, :]
        # Padding is a segment of its own: a position that attends to nothing would turn softmax into NaN.
        return same_BTT.tril()[:, None]


def pack(contexts: Sequence[Context], max_batch_tokens: int, one_per_row: bool) -> list[Batch]:
    """Batches with rows sorted by length, longest first, each of at most `max_batch_tokens` positions (B * T).

    A longer context goes alone. With `one_per_row` false, rows as long as the longest other context are filled
    first-fit-decreasing with several contexts. Every context is in exactly one batch; a batch's action tokens keep the
    order of time inside each context. Raises DataError for an empty or misaligned context, ConfigError for a limit
    below 1.
    """
    if max_batch_tokens < 1:
        raise ConfigError(f"A batch needs room for a token, got {max_batch_tokens}; raise update.micro_batch_tokens.")
    for context in contexts:
        _check_aligned(context)
    lengths = np.array([len(context.ids) for context in contexts], np.int64)
    order = np.argsort(-lengths, kind="stable")
    n_alone = len(order) if one_per_row else int((lengths > max_batch_tokens).sum())
    rows = [[int(c)] for c in order[:n_alone]] + _first_fit(lengths, order[n_alone:])
    used = [sum(int(lengths[c]) for c in row) for row in rows]
    by_length = np.argsort(-np.array(used, np.int64), kind="stable")
    rows, used = [rows[r] for r in by_length], [used[r] for r in by_length]
    batches = []
    start = 0
    while start < len(rows):
        end = start + max(1, max_batch_tokens // used[start])
        batches.append(_batch(contexts, lengths, rows[start:end], used[start], one_per_row))
        start = end
    return batches


def _check_aligned(context: Context) -> None:
    n = len(context.ids)
    sizes = (len(context.is_action), len(context.behaviour_logprobs), len(context.versions))
    if n == 0 or sizes != (n, n, n) or context.is_action[0]:
        raise DataError(
            f"The tokens of {context.name} cannot be packed: {n} ids with {sizes} action marks, logprobs and versions; "
            "expected equal numbers, at least one, the first an observation token; exclude the rollout."
        )


def _first_fit(lengths: IntArray, order: IntArray) -> list[list[int]]:
    """First-fit-decreasing into rows as long as the longest context: longer rows would only cost attention."""
    if not len(order):
        return []
    free = np.full(len(order), lengths[order[0]], np.int64)  # an unopened row is a row with everything free
    rows: list[list[int]] = [[] for _ in order]
    closed = 0
    shortest = lengths[order[-1]]
    for c in order:
        row = closed + int(np.argmax(free[closed:] >= lengths[c]))
        rows[row].append(int(c))
        free[row] -= lengths[c]
        while closed < len(free) and free[closed] < shortest:
            closed += 1
    return [row for row in rows if row]


def _batch(contexts: Sequence[Context], lengths: IntArray, rows: list[list[int]], width: int, one_per_row: bool) -> Batch:
    numbers = [c for row in rows for c in row]
    members = [contexts[c] for c in numbers]
    sizes = lengths[numbers]
    begins = np.cumsum(sizes) - sizes  # of each context in the concatenation
    n_in_row = np.array([len(row) for row in rows], np.int64)
    first_in_row = np.cumsum(n_in_row) - n_in_row
    row_of = np.repeat(np.arange(len(rows)), n_in_row)
    flat = np.arange(int(sizes.sum())) + np.repeat(row_of * width - begins[first_in_row[row_of]], sizes)
    segment_L = np.repeat(np.arange(len(members)) - first_in_row[row_of], sizes)
    # Padding takes its place in the row: with one context per row positions are then a plain range everywhere.
    positions_BT = np.tile(np.arange(width), (len(rows), 1))
    positions_BT.reshape(-1)[flat] = np.arange(len(flat)) - np.repeat(begins, sizes)
    ids_BT = np.full((len(rows), width), PAD_ID, np.int64)
    segments_BT = np.full((len(rows), width), PAD_SEGMENT, np.int64)
    ids_L = np.concatenate([c.ids for c in members]).astype(np.int64)
    ids_BT.reshape(-1)[flat] = ids_L
    segments_BT.reshape(-1)[flat] = segment_L
    action_L = np.concatenate([c.is_action for c in members])

    def of_actions(values: list[float] | list[int], dtype: type[np.generic]) -> Tensor:
        return torch.from_numpy(np.repeat(np.array(values, dtype), sizes)[action_L])

    return Batch(
        input_ids_BT=torch.from_numpy(ids_BT),
        position_ids_BT=torch.from_numpy(positions_BT),
        segment_ids_BT=torch.from_numpy(segments_BT),
        action_index_N=torch.from_numpy(flat[action_L]),
        target_ids_N=torch.from_numpy(ids_L[action_L]),
        behaviour_N=torch.from_numpy(np.concatenate([c.behaviour_logprobs for c in members])[action_L]),
        advantage_N=of_actions([c.advantage for c in members], np.float32),
        rollout_N=of_actions([c.rollout for c in members], np.int64),
        agent_N=of_actions([c.agent for c in members], np.int64),
        version_N=torch.from_numpy(np.concatenate([c.versions for c in members]).astype(np.int64)[action_L]),
        one_per_row=one_per_row,
    )


def padding_share(batches: Sequence[Batch]) -> float:
    """Share of the positions of these batches that hold no token; 0 for no batch."""
    total = sum(batch.segment_ids_BT.numel() for batch in batches)
    padded = sum(int((batch.segment_ids_BT == PAD_SEGMENT).sum()) for batch in batches)
    return padded / total if total else 0.0
