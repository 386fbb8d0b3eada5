"""What one agent of the workshop remembers: the facts it found out and the last ones that it was told."""

from __future__ import annotations

from collections.abc import Sequence

from envs.workshop.language import FACTS, N_MSGS, N_NOTES, NONE

_EMPTY = f"{NONE} {NONE}"


class Memory:
    """Facts are texts `x k`. The windows hold 3 own and 4 received facts, newest first; the sets are bounded by the
    vocabulary (48 packages x 16 keys), so a turn costs the same however many agents and messages there are."""

    __slots__ = ("_msgs", "_notes", "_own", "_received", "msgs_text", "notes_text")

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._msgs: list[str] = []
        self._own: set[str] = set()
        self._received: set[str] = set()
        self.notes_text = _page([], N_NOTES)
        self.msgs_text = _page([], N_MSGS)

    def learn(self, fact: str) -> None:
        """Remember a fact that the agent found out itself."""
        self._own.add(fact)
        _push(self._notes, fact, N_NOTES)
        self.notes_text = _page(self._notes, N_NOTES)

    def receive(self, messages: Sequence[tuple[str, str]]) -> int:
        """Remember the facts among new messages (sender's name, text); returns the number of words of their texts."""
        n_words = 0
        for _, text in messages:
            if text in FACTS:
                n_words += 2
                self._received.add(text)
                _push(self._msgs, text, N_MSGS)
            else:
                n_words += len(text.split())
        self.msgs_text = _page(self._msgs, N_MSGS)
        return n_words

    def only_received(self, fact: str) -> bool:
        """Whether the agent was told this fact and never found it out itself."""
        return fact in self._received and fact not in self._own


def _push(facts: list[str], fact: str, size: int) -> None:
    """Put a fact in front; a known one moves there, the oldest beyond `size` is forgotten."""
    if fact in facts:
        facts.remove(fact)
    facts.insert(0, fact)
    del facts[size:]


def _page(facts: list[str], size: int) -> str:
    return " ".join(facts + [_EMPTY] * (size - len(facts)))
