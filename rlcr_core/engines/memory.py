"""What a chat model has read: the keys and values of many contexts, read on by any number of tokens at a time.

`LlamaMemory` serves what rlcr_core.llama supports, from a pool of slots. `HuggingFaceMemory` serves every other decoder of
transformers, through its own cache: slower, since a change of the batch's rows copies their caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlcr_core import llama
from rlcr_core.engines.attention import Plan, Row
from rlcr_core.engines.pool import SlotPool
from rlcr_core.engines.readers import HuggingFaceReader, Slot
from rlcr_core.policy import has_recurrent_layers


class Source(NamedTuple):
    """The first `n` tokens of a context, to begin another one with."""

    context: int
    n: int


class Reading(NamedTuple):
    """Tokens to read on in a context (numbered by the caller; an unknown number starts one), and whether logits are wanted.

    A new context may begin with a copy of another one's first tokens; only for a memory that `shares_prefixes`.
    """

    context: int
    ids: Sequence[int]
    wanted: bool
    source: Source | None = None


class Memory(Protocol):
    """Contexts of one model."""

    shares_prefixes: bool

    def read(self, readings: Sequence[Reading]) -> Tensor:
        """Read on, each context at most once; float32 logits [R, V] after the R wanted readings, in their order."""

    def drop(self, context: int) -> None:
        """Forget a context; an unknown one is no error."""

    def clear(self) -> None:
        """Forget every context."""

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take these weights, by parameter name; contexts stay, and are stale."""


def make_memory(model: PreTrainedModel, dtype: torch.dtype) -> Memory:
    """The fastest memory that serves this model."""
    return LlamaMemory(model, dtype) if llama.supports(model) else HuggingFaceMemory(model, dtype)


class LlamaMemory:
    """Contexts in a pool of slots."""

    shares_prefixes = True

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype) -> None:
        self.decoder = llama.LlamaDecoder(model, dtype)
        d = self.decoder
        self.pool = SlotPool(d.n_layers, d.kv_heads, d.head_dim, dtype, d.device)
        self.rows: dict[int, tuple[int, int]] = {}  # context -> (slot, length)

    def read(self, readings: Sequence[Reading]) -> Tensor:
        placed = sorted((self._place(reading) for reading in readings), key=lambda p: (p[0].n > 1, p[0].slot))
        rows = [row for row, _ in placed]
        for row in rows:
            self.pool.extend(row.slot, row.end)
        device = self.decoder.device
        ids_N = torch.tensor([i for _, reading in placed for i in reading.ids], device=device)
        positions_N = torch.tensor([t for row in rows for t in range(row.start, row.end)], device=device)
        plan = self._plan(rows, range(len(positions_N)))
        wanted = [i for i, (_, reading) in enumerate(placed) if reading.wanted]
        wanted.sort(key=lambda i: rows[i].slot)
        last = plan
        if wanted and (len(wanted) < len(rows) or rows[-1].n > 1):
            ends = torch.tensor([row.n for row in rows]).cumsum(0).tolist()
            last = self._plan([Row(rows[i].slot, rows[i].end - 1, 1) for i in wanted], [ends[i] - 1 for i in wanted])
        hidden_RD = self.decoder.hidden(ids_N, positions_N, self.pool.layers, plan, last)
        for row, reading in placed:
            self.rows[reading.context] = (row.slot, row.end)
        order = {placed[i][1].context: r for r, i in enumerate(wanted)}
        back = [order[reading.context] for reading in readings if reading.wanted]
        return self.decoder.logits(hidden_RD[torch.tensor(back, dtype=torch.long, device=device)])

    def drop(self, context: int) -> None:
        row = self.rows.pop(context, None)
        if row is not None:
            self.pool.give_back(row[0])

    def clear(self) -> None:
        self.rows.clear()
        self.pool.clear()

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.decoder.load(state)

    def _place(self, reading: Reading) -> tuple[Row, Reading]:
        if reading.context not in self.rows:
            self.rows[reading.context] = (self.pool.take(), 0)
            if reading.source is not None:
                self._copy(reading.source, reading.context)
        slot, length = self.rows[reading.context]
        return Row(slot, length, len(reading.ids)), reading

    def _copy(self, source: Source, context: int) -> None:
        (donor, _), (slot, _) = self.rows[source.context], self.rows[context]
        self.pool.extend(slot, source.n)
        for layer in self.pool.layers:
            layer[slot, : source.n] = layer[donor, : source.n]
        self.rows[context] = (slot, source.n)

    def _plan(self, rows: list[Row], packed: Sequence[int]) -> Plan:
        rows_R = torch.tensor(packed, device=self.decoder.device)
        return Plan(rows, self.pool.n_positions, rows_R, self.decoder.dtype)


class HuggingFaceMemory:
    """Contexts in caches of transformers. The rows read last stay together, and go on without copies while they are read on."""

    shares_prefixes = False

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype) -> None:
        self.model = model.to(dtype)  # type: ignore[arg-type]
        self.recurrent = has_recurrent_layers(model)
        self.slots: dict[int, Slot] = {}
        self._live: list[int] = []  # contexts of the reader's rows, in its order; their slots are out of date
        self._reader: HuggingFaceReader | None = None

    def read(self, readings: Sequence[Reading]) -> Tensor:
        groups: dict[int, list[Reading]] = {}
        for reading in readings:  # recurrent layers cannot skip padding
            groups.setdefault(len(reading.ids) if self.recurrent else 0, []).append(reading)
        logits: dict[int, Tensor] = {}
        for group in groups.values():
            logits.update(zip((r.context for r in group), self._read(group), strict=True))
        return torch.stack([logits[reading.context] for reading in readings])[[r.wanted for r in readings]]

    def drop(self, context: int) -> None:
        if context in self._live:
            self._park()
        self.slots.pop(context, None)

    def clear(self) -> None:
        self.slots.clear()
        self._live, self._reader = [], None

    def load(self, state: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(state[name])

    def _read(self, group: list[Reading]) -> Tensor:
        contexts = [reading.context for reading in group]
        if self._reader is not None and set(contexts) <= set(self._live) and all(len(r.ids) == 1 for r in group):
            rows = [self._live.index(context) for context in contexts]
            if rows != list(range(len(self._live))):
                self._park(set(contexts))
                self._reader.select(torch.tensor(rows))
                self._live = contexts
            return self._reader.next(torch.tensor([reading.ids[0] for reading in group]))
        self._park()
        self._reader = HuggingFaceReader(self.model, [self.slots.get(context) for context in contexts])
        self._live = contexts
        return self._reader.start([reading.ids for reading in group])

    def _park(self, staying: Set[int] = frozenset()) -> None:
        """Copy the reader's rows but the staying ones into their slots; it is done with when none stays."""
        for row, context in enumerate(self._live):
            if self._reader is not None and context not in staying:
                self.slots[context] = self._reader.slot(row, 0)
        if not staying:
            self._live, self._reader = [], None
