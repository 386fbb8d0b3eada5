"""Texts of the rollout viewer: each distinct one kept once, and token ids as pieces of text that join to what was decoded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rlcr_core.errors import DataError
from rlcr_core.tokens import Tokenizer, WordTokenizer

BROKEN = "\ufffd"  # what a tokenizer gives for bytes that are no whole character


@dataclass(slots=True)
class Texts:
    """Distinct texts in order of first use."""

    index: dict[str, int] = field(default_factory=dict)

    def add(self, text: str) -> int:
        return self.index.setdefault(text, len(self.index))

    def all(self) -> list[str]:
        return list(self.index)


class Pieces:
    """Token ids as numbers into a table of texts, one per token; joined by `joint` they give the decoded text.

    Tokens that are parts of a character are written out at the first of them; the others become the empty piece 0.
    Raises DataError for an id that the tokenizer does not have.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.joint = " " if isinstance(tokenizer, WordTokenizer) else ""
        self.table = Texts()
        self.table.add("")
        self._tokenizer = tokenizer
        self._known: dict[int, int] = {}  # id -> piece; BROKEN ones are -1

    def _piece(self, token: int) -> int:
        piece = self._known.get(token)
        if piece is None:
            text = self._decode([token])
            piece = self._known[token] = -1 if BROKEN in text else self.table.add(text)
        return piece

    def _decode(self, ids: list[int]) -> str:
        try:
            return self._tokenizer.decode(ids)
        except (IndexError, KeyError, OverflowError, ValueError) as error:
            raise DataError(
                f"The tokenizer does not know the token ids {ids[:4]} ({error!r}); expected the tokenizer of the rollout's own "
                "policy; name its folder with --tokenizer."
            ) from error

    def of(self, ids: Iterable[int]) -> list[int]:
        """One piece for each id."""
        found: list[int] = []
        run: list[int] = []  # ids that are parts of characters

        def close() -> None:
            if run:
                found.extend([self.table.add(self._decode(run)), *([0] * (len(run) - 1))])
                run.clear()

        for token in ids:
            piece = self._piece(int(token))
            if piece < 0:
                run.append(int(token))
            else:
                close()
                found.append(piece)
        close()
        return found
