"""Actions of `workshop@1`: the tools of its agents and the strict parser of their calls."""

from __future__ import annotations

from typing import Final

from envs.workshop import language as lang
from envs.workshop.names import VILLAGE, Names
from rlcr_core.types import Call, ToolSpec, TurnKind

CHANNEL: Final = "general"
FAILURE_S: Final = 1.0

STAFF_TOOLS: Final = (
    ToolSpec("work", TurnKind.WORK, 4, FAILURE_S, "build module i of package x with key k", ("x", "k", "i")),
    ToolSpec("study", TurnKind.WORK, 2, FAILURE_S, "find out the key of package x", ("x",)),
    ToolSpec("post", TurnKind.TALK, 3, 0.0, "tell everybody that the key of x is k", ("channel", "text")),
    ToolSpec("dm", TurnKind.TALK, 4, 0.0, "tell agent A that the key of x is k", ("to", "text")),
    ToolSpec("wait", TurnKind.WAIT, 1, 1.0, "let time pass"),
)
CEO_TOOLS: Final = (
    *STAFF_TOOLS,
    ToolSpec("hire", TurnKind.ROSTER, 1, 1.0, "employ one more agent", ("brief",)),
    ToolSpec("fire", TurnKind.ROSTER, 2, 1.0, "dismiss agent A", ("agent",)),
)
_HIRE: Final = Call("hire", ("",), TurnKind.ROSTER)
_WAIT: Final = Call("wait", (), TurnKind.WAIT)
_UNKNOWN_VERB: Final = Call("unknown_verb", (), TurnKind.INVALID)
_WRONG_LENGTH: Final = Call("wrong_length", (), TurnKind.INVALID)
_WRONG_WORD: Final = Call("wrong_word", (), TurnKind.INVALID)


def parse_action(text: str, names: Names = VILLAGE) -> Call:
    """The call that a text states, word for word; otherwise an INVALID call whose tool names the reason.

    Reasons: `unknown_verb`, `wrong_length`, `wrong_word` (an argument of another class than the verb takes).
    """
    words = text.split(" ")
    verb = words[0]
    arity = lang.ARITY.get(verb)
    if arity is None:
        return _UNKNOWN_VERB
    if len(words) != arity:
        return _WRONG_LENGTH
    if verb == "work":
        _, x, k, i = words
        if x in names.package_set and k in lang.KEY_WORD_SET and i in lang.INDEX_SET:
            return Call("work", (x, k, i))
    elif verb == "wait":
        return _WAIT
    elif verb == "hire":
        return _HIRE
    elif verb == "post":
        if words[1] in names.package_set and words[2] in lang.KEY_WORD_SET:
            return Call("post", (CHANNEL, f"{words[1]} {words[2]}"), TurnKind.TALK)
    elif verb == "study":
        if words[1] in names.package_set:
            return Call("study", (words[1],))
    elif verb == "tell":
        if words[1] in names.agent_set and words[2] in names.package_set and words[3] in lang.KEY_WORD_SET:
            return Call("dm", (words[1], f"{words[2]} {words[3]}"), TurnKind.TALK)
    elif words[1] in names.agent_set:
        return Call("fire", (words[1],), TurnKind.ROSTER)
    return _WRONG_WORD
