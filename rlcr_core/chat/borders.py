"""Where a growing transcript differs from rendering the whole conversation at once with the model's chat template.

The transcript is what the model saw and sampled, so it is what is trained. A difference is no error: it says how the model's
own template would have shown the same history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rlcr_core.chat.forms import hermes
from rlcr_core.chat.template import Messages, first_messages
from rlcr_core.chat.tokenizer import ChatTokenizer

_AROUND: Final = 12  # tokens shown on each side of a difference
_ACTIONS: Final = {
    "plain text": "/work p07 k03 i05",
    "reasoning": "<think>\nfirst p07\n</think>\n\n/wait",
    "white space around a turn": "\n/wait \n",
}


def differences(tokenizer: ChatTokenizer, tools: Sequence[Mapping[str, Any]] = ()) -> dict[str, str]:
    """For each kind of turn that the template shows differently later on: the first place, in both versions.

    Kinds: plain text, reasoning, white space around a turn, a call and its result (templates with readable tools only).
    """
    cases = {kind: _talk(tokenizer, tools, action) for kind, action in _ACTIONS.items()}
    if tokenizer.template(tools).is_native:
        cases["a call and its result"] = _calls(tokenizer, tools)
    found = {kind: _first_difference(tokenizer, grown, whole) for kind, (grown, whole) in cases.items()}
    return {kind: text for kind, text in found.items() if text}


def _talk(tokenizer: ChatTokenizer, tools: Sequence[Mapping[str, Any]], action: str) -> tuple[list[int], list[int]]:
    """Ids of two turns that say `action`: (grown turn by turn, rendered at once)."""
    template = tokenizer.template(tools)
    texts = ["Rules of the game.", "84 s left", "work: done p07 i01\n43 s left", "The end."]
    grown = template.open(tokenizer.encode(texts[0]), tokenizer.encode(texts[1]))
    messages = first_messages(texts[0], texts[1], template.has_system_role)
    for text in texts[2:]:
        grown += [*tokenizer.encode_action(action), *template.proceed([], tokenizer.encode(text), True)]
        messages += [{"role": "assistant", "content": action}, {"role": "user", "content": text}]
    return grown, tokenizer.encode_markup(tokenizer.render(messages, tools, True))


def _calls(tokenizer: ChatTokenizer, tools: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[int]]:
    """The same for a turn of reasoning and two calls, whose results come as tool messages."""
    template = tokenizer.template(tools)
    arguments, thought = [{"to": "a013", "text": "p07 k03"}, {}], "I tell a013."
    action = "\n".join([thought, hermes("dm", arguments[0]), hermes("wait", arguments[1])])
    grown = template.open(tokenizer.encode("Rules."), tokenizer.encode("84 s left"))
    grown += tokenizer.encode_action(action)
    results = ["dm: sent a013", "wait: waited"]
    grown += template.proceed([tokenizer.encode(result) for result in results], tokenizer.encode("43 s left"), True)
    messages: Messages = first_messages("Rules.", "84 s left", template.has_system_role)
    functions = [{"name": name, "arguments": a} for name, a in zip(("dm", "wait"), arguments, strict=True)]
    calls = [{"type": "function", "function": function} for function in functions]
    messages += [{"role": "assistant", "content": thought, "tool_calls": calls}]
    messages += [{"role": "tool", "content": result} for result in results]
    messages += [{"role": "user", "content": "43 s left"}]
    return grown, tokenizer.encode_markup(tokenizer.render(messages, tools, True))


def _first_difference(tokenizer: ChatTokenizer, grown: Sequence[int], whole: Sequence[int]) -> str:
    if list(grown) == list(whole):
        return ""
    at = next((i for i, (a, b) in enumerate(zip(grown, whole, strict=False)) if a != b), min(len(grown), len(whole)))
    span = slice(max(at - _AROUND, 0), at + _AROUND)
    return f"token {at}: the transcript has {tokenizer.decode(grown[span])!r}, rendered at once {tokenizer.decode(whole[span])!r}"
