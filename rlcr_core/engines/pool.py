"""A pool of slots for keys and values: one tensor per layer, one slot per context, grown when it is full.

Slots are handed out lowest first, so that the contexts of a batch lie side by side and attention reads them as views.
On the CPU the memory of a slot is touched only as far as its context is long, so a wide pool costs what is used of it.
"""

from __future__ import annotations

import heapq

import torch
from torch import Tensor

FIRST_SLOTS, FIRST_LENGTH = 16, 256  # lengths stay multiples of 32, the step of attention's key ranges


class SlotPool:
    """`layers[i]` is [S slots, T positions, 2 * kv_heads, D]: keys in the first half of the heads, values in the second."""

    def __init__(self, n_layers: int, kv_heads: int, head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self.n_layers = n_layers
        self.entry = (2 * kv_heads, head_dim)
        self.dtype, self.device = dtype, device
        self.clear()

    @property
    def n_slots(self) -> int:
        return len(self._length)

    @property
    def n_positions(self) -> int:
        return self.layers[0].shape[1]

    def clear(self) -> None:
        """Give every slot and its memory back."""
        self.layers: list[Tensor] = [self._empty(0, FIRST_LENGTH) for _ in range(self.n_layers)]
        self._length: list[int] = []  # positions in use, by slot
        self._free: list[int] = []

    def take(self) -> int:
        """The lowest free slot."""
        if not self._free:
            n = self.n_slots
            self._free = list(range(n, max(FIRST_SLOTS, 2 * n)))
            self._length += [0] * len(self._free)
            self._resize(self.n_positions)
        return heapq.heappop(self._free)

    def give_back(self, slot: int) -> None:
        """Free a slot; when none is in use any more, the memory goes too."""
        self._length[slot] = 0
        heapq.heappush(self._free, slot)
        if len(self._free) == self.n_slots:
            self.clear()

    def extend(self, slot: int, length: int) -> None:
        """Say that a slot holds `length` positions; the pool grows to hold them."""
        if length > self.n_positions:
            n = self.n_positions
            while n < length:
                n *= 2
            self._resize(n)
        self._length[slot] = length

    def _empty(self, n_slots: int, n_positions: int) -> Tensor:
        # Zeros, not empty memory: what attention masks out must still be finite.
        return torch.zeros(n_slots, n_positions, *self.entry, dtype=self.dtype, device=self.device)

    def _resize(self, n_positions: int) -> None:
        """Move what is in use into larger tensors, one layer at a time."""
        for i, old in enumerate(self.layers):
            new = self._empty(self.n_slots, n_positions)
            for slot, length in enumerate(self._length[: len(old)]):
                new[slot, :length] = old[slot, :length]
            self.layers[i] = new
