"""The two forms of a call. Both are read strictly and written by the inverse of the reader.

Plain, for models whose template has no tools: a line `/name arg1 arg2 ...` is a call, single spaces between, the last
argument takes the rest of its line; every other line is reasoning.

Native (Hermes), for templates that have it: `<tool_call>`, a JSON object with exactly `name` and `arguments`,
`</tool_call>`; arguments are exactly the tool's parameters, all strings; everything outside is reasoning.

A turn with anything malformed is one INVALID call whose tool is the reason and whose argument explains it in a line:
`no_call`, `unknown_tool`, `wrong_arguments`, `bad_json`, `too_many_calls`, `too_long`, `unfinished`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from rlcr_core.errors import DataError
from rlcr_core.types import Call, ToolSpec, TurnKind

Tools = Mapping[str, ToolSpec]
OPTIONAL: Final = {"hire": "brief"}  # the last argument of these tools may be left out: it is then empty
KIND_ORDER: Final = (TurnKind.WORK, TurnKind.TALK, TurnKind.ROSTER, TurnKind.WAIT)
_SHOWN: Final = 24  # characters of a malformed name that its explanation quotes
_BLOCK: Final = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_NAME: Final = re.compile(r'<tool_call>\s*\{\s*"name"\s*:\s*"(\w+)"')


class Malformed(Exception):
    """A turn that is no sequence of calls: a reason of the closed set, and one line that explains it."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class Form(Protocol):
    """How calls are written. `read` and `write` are inverse to each other."""

    native: bool

    def read(self, text: str, tools: Tools) -> list[Call]:
        """The calls of a finished turn, in order. Raises Malformed."""

    def write(self, calls: Sequence[Call], tools: Tools) -> str:
        """The text of calls. Raises DataError for one that the form cannot say."""

    def first_kind(self, text: str, tools: Tools) -> TurnKind:
        """The kind of the first call that a turn cut before its end shows; INVALID when it shows none."""


class PlainForm:
    native = False

    def read(self, text: str, tools: Tools) -> list[Call]:
        calls = [self._call(line, tools) for line in text.split("\n") if line.startswith("/")]
        if not calls:
            raise Malformed("no_call", "no call: write one a line, such as /wait")
        return calls

    def _call(self, line: str, tools: Tools) -> Call:
        name, _, rest = line[1:].rstrip().partition(" ")
        spec = _spec(name, tools)
        n = len(spec.parameters)
        values = rest.split(" ", max(n - 1, 0)) if rest else []
        if len(values) == n - 1 and OPTIONAL.get(name) == spec.parameters[-1]:
            values.append("")
        elif len(values) != n or not all(_is_trimmed(value) for value in values):
            raise Malformed("wrong_arguments", f"expected {_usage(spec)}")
        return Call(name, tuple(values), spec.kind)

    def write(self, calls: Sequence[Call], tools: Tools) -> str:
        return "\n".join(self._line(call, tools) for call in calls)

    def _line(self, call: Call, tools: Tools) -> str:
        spec = _writable(call, tools)
        values = list(call.args)
        if values and values[-1] == "" and OPTIONAL.get(call.tool) == spec.parameters[-1]:
            values.pop()
        if any(not _is_trimmed(value) or "\n" in value for value in values) or any(" " in value for value in values[:-1]):
            raise DataError(
                f"the plain form cannot write {call}: arguments must be one line without spaces at their ends, and all but the "
                "last without spaces; change the text, or use a model whose template has tools."
            )
        return " ".join([f"/{call.tool}", *values])

    def first_kind(self, text: str, tools: Tools) -> TurnKind:
        names = (line[1:].partition(" ")[0].rstrip() for line in text.split("\n") if line.startswith("/"))
        return next((tools[name].kind for name in names if name in tools), TurnKind.INVALID)


class NativeForm:
    native = True

    def read(self, text: str, tools: Tools) -> list[Call]:
        rest = _BLOCK.sub("", text)
        if "<tool_call>" in rest or "</tool_call>" in rest:
            raise Malformed("bad_json", "a <tool_call> without its </tool_call>")
        calls = [self._call(block, tools) for block in _BLOCK.findall(text)]
        if not calls:
            raise Malformed("no_call", "no call: write one in <tool_call></tool_call>")
        return calls

    def _call(self, block: str, tools: Tools) -> Call:
        try:
            data = json.loads(block, object_pairs_hook=_distinct)
        except (ValueError, RecursionError):
            raise Malformed("bad_json", 'a call is {"name": ..., "arguments": {...}}') from None
        if not isinstance(data, dict) or set(data) != {"name", "arguments"} or not isinstance(data["arguments"], dict):
            raise Malformed("bad_json", 'a call has exactly "name" and "arguments"')
        spec = _spec(data["name"] if isinstance(data["name"], str) else repr(data["name"]), tools)
        arguments = data["arguments"]
        optional = OPTIONAL.get(spec.name)
        if optional in spec.parameters:
            arguments.setdefault(optional, "")
        if set(arguments) != set(spec.parameters) or not all(_is_text(value) for value in arguments.values()):
            raise Malformed("wrong_arguments", f"{spec.name} takes the strings {', '.join(spec.parameters) or '(none)'}")
        return Call(spec.name, tuple(arguments[name] for name in spec.parameters), spec.kind)

    def write(self, calls: Sequence[Call], tools: Tools) -> str:
        specs = [_writable(call, tools) for call in calls]
        pairs = zip(calls, specs, strict=True)
        return "\n".join(hermes(call.tool, dict(zip(spec.parameters, call.args, strict=True))) for call, spec in pairs)

    def first_kind(self, text: str, tools: Tools) -> TurnKind:
        return next((tools[name].kind for name in _NAME.findall(text) if name in tools), TurnKind.INVALID)


def hermes(name: str, arguments: Mapping[str, str]) -> str:
    """One call in the native form; tags inside of an argument are escaped."""
    text = json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)
    text = text.replace("<tool_call>", "\\u003ctool_call>").replace("</tool_call>", "\\u003c/tool_call>")
    return f"<tool_call>\n{text}\n</tool_call>"


def after_reasoning(text: str, is_open: bool) -> str:
    """What follows a block <think>...</think> at the beginning; `is_open`: the prompt has opened it already."""
    if is_open or text.lstrip().startswith("<think>"):
        return text.partition("</think>")[2]
    return text


def turn_kind(calls: Sequence[Call]) -> TurnKind:
    """The kind of a turn with several calls: work if any is work, else talk, else roster, else wait."""
    kinds = {call.kind for call in calls}
    return next(kind for kind in KIND_ORDER if kind in kinds)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a key appears twice")
    return data


def _is_text(value: object) -> bool:
    """A string without lone surrogates, which JSON can spell and nobody can encode."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


def _is_trimmed(value: str) -> bool:
    return bool(value) and value == value.strip()


def _usage(spec: ToolSpec) -> str:
    return " ".join([f"/{spec.name}", *spec.parameters])


def _spec(name: str, tools: Tools) -> ToolSpec:
    if name not in tools:
        shown = name[:_SHOWN].encode("utf-8", "replace").decode()
        raise Malformed("unknown_tool", f"no tool {shown!r}; there are {' '.join(tools)}")
    return tools[name]


def _writable(call: Call, tools: Tools) -> ToolSpec:
    spec = tools.get(call.tool)
    if spec is None or len(call.args) != len(spec.parameters) or not all(_is_text(value) for value in call.args):
        raise DataError(f"{call} is no call of the tools {' '.join(tools)} with all their parameters; correct the call.")
    return spec
