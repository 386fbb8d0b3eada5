"""The words of a prompt, each part cut to its size with a note of how much is missing.

Texts of others are put on one line: nobody can write a line that looks like somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rlcr_core.chat.tools import usage_line
from rlcr_core.clock import COLLECTIVE_TOOLS
from rlcr_core.tokens import Tokenizer
from rlcr_core.types import AgentView, Call, CallResult, ToolSpec

N_NAMES: Final = 12  # names of the team that one prompt lists
_NOTE: Final = 8  # tokens that a note takes at least
_LOST: Final = "�"
_CEO: Final = "You are the CEO of a team. Earn as much reward as you can before time runs out."
_STAFF: Final = "You work in a team. Earn it as much reward as you can before time runs out."
_REFUSALS: Final[Mapping[str, str]] = {
    "unknown": "unknown, nobody of that name works here",
    "denied": "denied, only the CEO may",
    "full": "full, no more can be hired",
    "long": "too long",
}


def one_line(text: str) -> str:
    return " ".join(text.splitlines()).strip()


def size(tokenizer: Tokenizer, text: str) -> int:
    """Tokens of a text by itself; texts joined by line breaks take their sum and one more for each break at most."""
    return len(tokenizer.encode(text))


def cut(tokenizer: Tokenizer, text: str, limit: int) -> str:
    """The text, or as much of its beginning as fits `limit` tokens together with a note of how many are missing."""
    ids = tokenizer.encode(text)
    room = limit - _NOTE
    result = text
    while size(tokenizer, result) > limit and room > -_NOTE:
        kept = tokenizer.decode(ids[: max(room, 0)]).rstrip(_LOST)
        result = f"{kept} ... cut, {len(ids) - max(room, 0)} tokens more"
        room -= 1
    return result


def newest(tokenizer: Tokenizer, lines: Sequence[str], limit: int, what: str) -> list[str]:
    """As many of the last lines as fit `limit` tokens, in order, after a note of how many are left out."""
    sizes = [size(tokenizer, line) + 1 for line in lines]  # with their line breaks
    if sum(sizes) <= limit:
        return list(lines)
    for first in range(1, len(lines) + 1):
        note = f"... cut, {first} {what} of {sum(sizes[:first])} tokens more"
        if size(tokenizer, note) + 1 + sum(sizes[first:]) <= limit:
            break
    return [note, *lines[first:]]


def system_text(is_ceo: bool, rules: str, tools: Iterable[ToolSpec], native: bool, max_calls: int) -> str:
    """Role, rules and, in the plain form, a line for each tool; the native form has them in the template."""
    parts = [_CEO if is_ceo else _STAFF, rules.strip()]
    if native:
        parts.append(f"End each turn with 1 to {max_calls} tool calls.")
    else:
        parts.append(f"Tools (1 to {max_calls} calls a turn, one a line):")
        parts += [usage_line(spec) for spec in tools]
    return "\n".join(part for part in parts if part)


def result_line(call: Call, result: CallResult) -> str:
    """What a call came to, such as `work: done p07 i01` or `dm failed: unknown, nobody of that name works here`."""
    if result.ok:
        separator = " | " if call.tool in ("read", "search") else " "
        return one_line(f"{call.tool}: {separator.join((result.code, *result.args))}")
    code = _REFUSALS.get(result.code, result.code) if call.tool in COLLECTIVE_TOOLS else result.code
    return one_line(f"{call.tool} failed: {' '.join((code, *result.args))}")


def message_lines(view: AgentView) -> list[str]:
    return [one_line(f"{name}: {text}") for name, text in view.new_messages]


def status_line(view: AgentView, names: bool) -> str:
    """Time left and the size of the team; `names` lists it too."""
    left_s = view.time_left_s
    size = f"{view.n_hired}/{view.max_hires}" if view.is_ceo else f"{len(view.team)}"
    text = f"{left_s:.0f} s left, team {size}" if left_s >= 10 else f"{left_s:.1f} s left, team {size}"
    if not names or not view.team:
        return text
    shown = [f"{name} (CEO)" if i == 0 and not view.is_ceo else name for i, name in enumerate(view.team[:N_NAMES])]
    more = [f"and {len(view.team) - N_NAMES} more"] if len(view.team) > N_NAMES else []
    return f"{text}: {' '.join([*shown, *more])}"


def summary_text(tokenizer: Tokenizer, turns: int, results: Sequence[str], messages: Sequence[str], limit: int) -> str:
    """What a new context is told of the ones before it: the last results and the last messages, half the room each."""
    head, did, told = f"Your notes of {turns} earlier turns.", "You did:", "You were told:"
    room = limit - sum(size(tokenizer, title) + 1 for title in (head, did, told))
    lines = [head]
    for title, past in ((did, results), (told, messages)):
        if past:
            lines += [title, *newest(tokenizer, past, room // 2, "older")]
    return cut(tokenizer, "\n".join(lines), limit)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a user's message. A list holds lines, texts may have several."""

    first: str  # who the agent is, at the beginning of a context
    results: list[str]
    messages: list[str]
    status: str
    state: str

    def join(self) -> str:
        """One text without empty parts."""
        parts = [self.first, *self.results, *self.messages, self.status, self.state]
        return "\n".join(part for part in parts if part)

    def fit(self, tokenizer: Tokenizer, limit: int) -> Parts:
        """The same within `limit` tokens: the state keeps at least half of what messages and state share."""
        fixed = "\n".join([self.first, *self.results, self.status])
        room = limit - size(tokenizer, fixed) - 2
        state_tokens = size(tokenizer, self.state)
        message_tokens = sum(size(tokenizer, line) + 1 for line in self.messages)
        if state_tokens + message_tokens <= room:
            return self
        state = cut(tokenizer, self.state, max(room - message_tokens, room // 2))
        left = room - size(tokenizer, state)
        return Parts(self.first, self.results, newest(tokenizer, self.messages, left, "older messages"), self.status, state)
