"""The names of the other employed agents, as one agent sees them, without a copy for each of its turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload


class Others(Sequence[str]):
    """Everybody's names but the one at `own`. Length and index take the same time at any number of agents.

    `names` is not copied: whoever changes the roster makes a new tuple, so that what an agent saw stays as it was.
    """

    __slots__ = ("_names", "_own")

    def __init__(self, names: tuple[str, ...], own: int) -> None:
        self._names, self._own = names, own

    def __len__(self) -> int:
        return len(self._names) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...

    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        n = len(self._names) - 1
        if isinstance(index, slice):
            return tuple([self[i] for i in range(*index.indices(n))])
        place = index + n if index < 0 else index
        if not 0 <= place < n:
            raise IndexError(f"there are {n} others, got index {index}")
        return self._names[place + (place >= self._own)]

    def __iter__(self) -> Iterator[str]:
        yield from self._names[: self._own]
        yield from self._names[self._own + 1 :]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Others) and other._names is self._names:
            return other._own == self._own
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Others{tuple(self)}"
