"""Every tool of an agent: the environment's own, then the collective's, each by its name once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from rlcr_core.clock import COLLECTIVE_TOOLS
from rlcr_core.errors import EnvironmentFault
from rlcr_core.types import Environment, ToolSpec, TurnKind

_TALK, _ROSTER = TurnKind.TALK, TurnKind.ROSTER
_COLLECTIVE: Final = (
    ToolSpec("dm", _TALK, 1, 0.0, "tell one agent", ("to", "text")),
    ToolSpec("post", _TALK, 1, 0.0, "tell everybody", ("channel", "text")),
    ToolSpec("read", _TALK, 1, 0.0, "last posts of a channel", ("channel",)),
    ToolSpec("search", _TALK, 1, 0.0, "messages with these words", ("query",)),
    ToolSpec("wait", TurnKind.WAIT, 1, 0.0, "let time pass"),
    ToolSpec("hire", _ROSTER, 1, 0.0, "employ one more agent", ("brief",)),
    ToolSpec("fire", _ROSTER, 1, 0.0, "dismiss an agent", ("agent",)),
)
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def all_tools(environment: Environment, is_ceo: bool) -> dict[str, ToolSpec]:
    """An agent's tools by name. A call may be one token long: the lookahead is bounded by that.

    Of the collective's tools, an environment may give its own description; their parameters and kinds are the collective's.
    Raises EnvironmentFault for a tool that cannot be written as a call.
    """
    own = environment.tools(is_ceo)
    for spec in own:
        is_named = all(_NAME.fullmatch(name) for name in (spec.name, *spec.parameters))
        if not is_named or len(set(spec.parameters)) != len(spec.parameters) or spec.kind is TurnKind.INVALID:
            raise EnvironmentFault(
                f"{environment.id}: the tool {spec} cannot be offered to a chat model; expected a name and distinct parameters "
                "of letters, digits and _, and a valid kind; correct the environment's tools."
            )
    tools = {spec.name: replace(spec, min_tokens=1) for spec in own if spec.name not in COLLECTIVE_TOOLS}
    described = {spec.name: spec.description for spec in own if spec.description}
    for spec in _COLLECTIVE:
        if is_ceo or spec.kind is not _ROSTER:
            tools[spec.name] = replace(spec, description=described.get(spec.name, spec.description))
    return tools


def usage_line(spec: ToolSpec) -> str:
    """One line of the plain form's documentation, such as `/work x k i: build module i of package x with key k`."""
    call = " ".join([f"/{spec.name}", *spec.parameters])
    return f"{call}: {spec.description}" if spec.description else call


def schemas(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """JSON schemas as chat templates take them; every argument is a string."""
    return [
        {
            "type": "function",
            "function": {
                "name": spec.name,
                "description": spec.description,
                "parameters": {
                    "type": "object",
                    "properties": {name: {"type": "string"} for name in spec.parameters},
                    "required": list(spec.parameters),
                },
            },
        }
        for spec in tools
    ]
