"""A chat template cut into pieces, so that a transcript grows by appending and history is never rendered again.

The template is asked to render conversations whose texts are placeholders; what it writes between them are the pieces:

    head S mid U ask A | next U ask A | next U ask A ...

S is the system text, U a user's, A the model's own tokens, which begin after `ask` and end with the stop token that `next`
begins with. With tools, the results of calls come between: `A tool_first R tool_next R tool_user U ask`. A template
is refused when the pieces of a short conversation are not those of a longer one: it then rewrites its history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlcr_core.chat.forms import hermes
from rlcr_core.errors import ConfigError

if TYPE_CHECKING:
    from rlcr_core.chat.tokenizer import ChatTokenizer

Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """Ids of the pieces. `next_ids`, `tool_first_ids` begin with the stop token. `tool_...` are empty without tools."""

    head_ids: tuple[int, ...]
    mid_ids: tuple[int, ...]
    ask_ids: tuple[int, ...]
    next_ids: tuple[int, ...]
    stop_id: int
    opens_reasoning: bool  # the model's turn begins inside <think>
    has_system_role: bool
    tool_first_ids: tuple[int, ...] = ()
    tool_next_ids: tuple[int, ...] = ()
    tool_user_ids: tuple[int, ...] = ()

    @property
    def is_native(self) -> bool:
        """Whether the template has tool calls in the form that this project reads."""
        return bool(self.tool_first_ids)

    def open(self, system: Sequence[int], user: Sequence[int]) -> list[int]:
        """A new context up to where the model speaks."""
        return [*self.head_ids, *system, *self.mid_ids, *user, *self.ask_ids]

    def proceed(self, results: Sequence[Sequence[int]], user: Sequence[int], stopped: bool) -> list[int]:
        """What follows the model's turn; `stopped`: its last token was the stop token, which is not written again."""
        pieces = list(self.next_ids)
        if results:
            pieces = [*self.tool_first_ids, *results[0]]
            for result in results[1:]:
                pieces += [*self.tool_next_ids, *result]
            pieces += self.tool_user_ids
        return [*pieces[1 if stopped else 0 :], *user, *self.ask_ids]


def cut_template(tokenizer: ChatTokenizer, tools: Sequence[Mapping[str, Any]] = ()) -> ChatTemplate:
    """The pieces with these tools in the system prompt. Raises ConfigError for a template that cannot be appended to."""
    has_system_role = _takes_system(tokenizer, tools)
    head, mid, ask = _pieces(tokenizer, tools, _conversation(1, has_system_role), True)[:3]
    longer = _pieces(tokenizer, tools, _conversation(3, has_system_role), True)
    _, _, opening, following = longer[:4]
    same = longer == [head, mid, opening, following, opening, following, ask]
    if not same or _before_reasoning(opening) != _before_reasoning(ask):
        raise _refusal(tokenizer, f"a conversation of three turns has the pieces {longer}, one turn {[head, mid, ask]}")
    following_ids = _from_stop(tokenizer, following)
    ended = [*_conversation(1, has_system_role), {"role": "assistant", "content": _mark(2)}]
    closing_ids = _from_stop(tokenizer, _pieces(tokenizer, tools, ended, False)[-1])
    if closing_ids[0] != following_ids[0]:
        raise _refusal(tokenizer, f"the model's turn ends with {tokenizer.decode(closing_ids[:1])!r} only if it is the last")
    native = _tool_pieces(tokenizer, tools, has_system_role) if tools else ()
    head_ids, mid_ids, ask_ids = (tuple(tokenizer.encode_markup(piece)) for piece in (head, mid, ask))
    tool_ids: tuple[tuple[int, ...], ...] = ()
    if native and native[3] == ask:
        tool_ids = (_from_stop(tokenizer, native[0]), *(tuple(tokenizer.encode_markup(piece)) for piece in native[1:3]))
        if tool_ids[0][0] != following_ids[0]:
            raise _refusal(tokenizer, f"a turn of calls ends with {tokenizer.decode(tool_ids[0][:1])!r}, others do not")
    opens_reasoning = ask.rstrip().endswith("<think>")
    return ChatTemplate(head_ids, mid_ids, ask_ids, following_ids, following_ids[0], opens_reasoning, has_system_role, *tool_ids)


def _before_reasoning(piece: str) -> str:
    """Without the empty reasoning that templates write in history, or open for the next turn: that is no unsound history."""
    return piece.partition("<think>")[0].rstrip()


def first_messages(system: str, user: str, has_system_role: bool) -> Messages:
    """How a conversation begins; without a system role the user's first message begins with the system text."""
    if has_system_role:
        return [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return [{"role": "user", "content": f"{system}\n\n{user}"}]


def _mark(number: int) -> str:
    return f"Placeholder{'abcdefghij'[number]}End"


def _conversation(turns: int, has_system_role: bool) -> Messages:
    """Placeholders 0 (system), 1 (user), 2 (assistant), 3 (user), ... with `turns` messages of the user."""
    messages = first_messages(_mark(0), _mark(1), has_system_role)
    for i in range(2, 2 * turns, 2):
        messages += [{"role": "assistant", "content": _mark(i)}, {"role": "user", "content": _mark(i + 1)}]
    return messages


def _takes_system(tokenizer: ChatTokenizer, tools: Sequence[Mapping[str, Any]]) -> bool:
    for has_system_role in (True, False):
        try:
            text = tokenizer.render(_conversation(1, has_system_role), tools, True)
        except Exception as error:  # templates refuse by raising any error of jinja
            if not has_system_role:
                raise _refusal(tokenizer, f"it cannot render a system text and a user's message ({error})") from error
            continue
        if _mark(0) in text:
            return has_system_role
    raise _refusal(tokenizer, "it leaves out the system text")


def _pieces(tokenizer: ChatTokenizer, tools: Sequence[Mapping[str, Any]], messages: Messages, ask: bool) -> list[str]:
    """What the template writes before, between and after the placeholders of these messages."""
    try:
        rest = tokenizer.render(messages, tools, ask)
    except Exception as error:
        raise _refusal(tokenizer, f"it cannot render a conversation of {len(messages)} messages ({error})") from error
    pieces = []
    for mark in [_mark(i) for i in range(10) if any(_mark(i) in str(message) for message in messages)]:
        before, found, after = rest.partition(mark)
        if not found or mark in after:
            raise _refusal(tokenizer, f"a message's text appears out of order, more than once or not at all in {rest!r}")
        pieces.append(before)
        rest = after
    return [*pieces, rest]


def _from_stop(tokenizer: ChatTokenizer, piece: str) -> tuple[int, ...]:
    """Ids of what follows the model's text, from its stop token on; white space before that is the template's alone."""
    ids = tokenizer.encode_markup(piece)
    stop = next((i for i, token in enumerate(ids) if token in tokenizer.special_ids), None)
    if stop is None or tokenizer.decode(ids[:stop]).strip():
        raise _refusal(tokenizer, f"after the model's text it writes {piece!r}, which begins with no special token to stop at")
    return tuple(ids[stop:])


def _tool_pieces(tokenizer: ChatTokenizer, tools: Sequence[Mapping[str, Any]], has_system_role: bool) -> tuple[str, ...]:
    """(after the calls, between results, from the last result to the user's text, ask); () without a readable form.

    The form is readable when the template shows the tools and writes a call as `forms.hermes` does.
    """
    name, argument = "Placeholder_tool", _mark(3)
    call = {"type": "function", "function": {"name": name, "arguments": {"text": argument}}}
    messages = first_messages(_mark(0), _mark(1), has_system_role)
    messages += [{"role": "assistant", "content": _mark(2), "tool_calls": [call]}]
    messages += [{"role": "tool", "name": name, "content": _mark(4)}, {"role": "tool", "name": name, "content": _mark(5)}]
    messages += [{"role": "user", "content": _mark(6)}]
    try:
        text = tokenizer.render(messages, tools, True)
    except Exception:  # templates without tools refuse them by raising any error of jinja
        return ()
    written = hermes(name, {"text": argument})
    first_tool = str(tools[0]["function"]["name"])
    before, found, after = text.partition(written)
    marks = [after.find(_mark(i)) for i in (4, 5, 6)]
    if not found or first_tool not in before or min(marks) < 0 or marks != sorted(marks):
        return ()
    head = tokenizer.render(first_messages(_mark(0), _mark(1), has_system_role), tools)
    if first_tool not in head:
        return ()
    rest, pieces = after, []
    for i in (4, 5, 6):
        piece, _, rest = rest.partition(_mark(i))
        pieces.append(piece)
    return (*pieces, rest)


def _refusal(tokenizer: ChatTokenizer, reason: str) -> ConfigError:
    return ConfigError(
        f"the chat template of {tokenizer.name} cannot be appended to turn by turn: {reason}; expected the same text around "
        "every message and a special token after the model's; change policy.model or its chat template."
    )
