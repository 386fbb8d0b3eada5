"""`workshop@1` told to chat models in open text: the rules, and what an agent sees now.

The words of packages, modules and keys are those of language.py, so that a message `p07 k03` states a fact in both forms.
"""

from __future__ import annotations

from typing import Final

from envs.workshop.language import NONE

_RULES: Final = (
    "Each built module i of a package x is a reward. A module opens when those it needs are built. Most need the key k of "
    "their package; else write nokey. Building i00 or studying x shows its key; tell others with the text x k. A wrong key, "
    "or work that somebody else finishes first, is lost time."
)


def rules(is_ceo: bool) -> str:
    """What earns a reward; the same for everybody."""
    return _RULES


def describe(board: str, notes: str, messages: str) -> str:
    """Open modules, and the facts that this agent knows: its own first, newest first. Each argument is pairs of words."""
    modules = _pairs(board)
    facts = list(dict.fromkeys([*_pairs(notes), *_pairs(messages)]))
    lines = [f"open: {' '.join(modules) if modules else NONE}"]
    if facts:
        lines.append(f"keys: {' '.join(facts)}")
    return "\n".join(lines)


def _pairs(text: str) -> list[str]:
    words = text.split(" ")
    pairs = zip(words[::2], words[1::2], strict=True)
    return [f"{x} {y}" for x, y in pairs if x != NONE]
