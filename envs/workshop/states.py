"""What one observation of the workshop shows, as a few small features: for asking how far observations are from others.

Names are left out: they are drawn anew for each task. What is left is all that a policy can tell situations apart by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envs.workshop import language as lang
from envs.workshop.grammar import read_observation


class State(NamedTuple):
    """`keyed` of the `open` modules on the page are no roots, and of these `visible` have a fact about their package in view."""

    role: str
    time: str
    size: str
    code: str
    notes: int  # facts in the window of own findings
    msgs: int  # facts in the window of messages
    facts: int  # distinct packages in both windows
    open: int
    keyed: int
    visible: int


def state_of(words: Sequence[str]) -> State:
    """The features of an observation's 34 words. Raises DataError for other texts."""
    shown = read_observation(words)
    notes = sum(words[lang.NOTES_AT + 2 * i] != lang.NONE for i in range(lang.N_NOTES))
    known = {package for package, _ in shown.facts}
    keyed = [package for package, index in shown.board if index != lang.INDICES[0]]
    return State(
        role=shown.role,
        time=words[lang.ROLE_AT + 1],
        size=words[lang.ROLE_AT + 2],
        code=words[lang.ROLE_AT + 3],
        notes=notes,
        msgs=len(shown.facts) - notes,
        facts=len(known),
        open=len(shown.board),
        keyed=len(keyed),
        visible=sum(package in known for package in keyed),
    )
