"""What one agent of the workshop remembers: the facts it found out and the last ones that it was told."""

from __future__ import annotations

from collections.abc import Sequence

from envs.workshop.language import FACTS, N_MSGS, N_NOTES, NONE

_EMPTY = f"{NONE} {NONE}"


class Memory:
    """Facts are texts `x k`. The windows hold 3 own and 4 received facts, newest first; the sets are bounded by the
    vocabulary (48 packages x 16 keys of `workshop@1`). A turn costs the same for any number of agents; each new message
    costs a look into two sets, and only the last few distinct facts are put into the window."""

    __slots__ = ("_facts", "_msgs", "_notes", "_own", "_received", "msgs_text", "notes_text")

    def __init__(self, facts: frozenset[str] = FACTS) -> None:
        self._facts = facts
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
        known = self._facts
        facts = [text for _, text in messages if text in known]
        n_words = 2 * len(facts)
        if len(facts) < len(messages):
            n_words += sum(len(text.split()) for _, text in messages if text not in known)
        self._received.update(facts)
        for fact in _latest(facts, N_MSGS):
            _push(self._msgs, fact, N_MSGS)
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


def _latest(facts: Sequence[str], size: int) -> list[str]:
    """The last `size` distinct facts, in the order of their last occurrence: pushing these alone leaves the same window."""
    latest: list[str] = []
    for fact in reversed(facts):
        if fact not in latest:
            latest.append(fact)
            if len(latest) == size:
                break
    return latest[::-1]


def _page(facts: list[str], size: int) -> str:
    return " ".join(facts + [_EMPTY] * (size - len(facts)))
