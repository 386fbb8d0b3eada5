"""The vocabulary and the strict parser of workshop@1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.workshop import language as lang
from envs.workshop.actions import CEO_TOOLS, STAFF_TOOLS, parse_action
from rlcr_core.types import Call, TurnKind

TALK, ROSTER, WAIT, WORK = TurnKind.TALK, TurnKind.ROSTER, TurnKind.WAIT, TurnKind.WORK


def test_vocabulary_is_closed_and_counted():
    # 7 verbs, 48 packages, 16 keys and nokey, 16 indices, 128 agents, 2 roles, 6 times, 6 sizes, 4 markers, none and
    # nobody, 8 codes of the environment and 8 of the collective: 7+48+17+16+128+2+6+6+4+2+16 = 252.
    assert len(lang.VOCABULARY) == len(set(lang.VOCABULARY)) == 252


@pytest.mark.parametrize(
    ("text", "call"),
    [("work p07 k03 i05", Call("work", ("p07", "k03", "i05"), WORK)),
     ("work p07 nokey i00", Call("work", ("p07", "nokey", "i00"), WORK)),
     ("study p47", Call("study", ("p47",), WORK)),
     ("post p07 k03", Call("post", ("general", "p07 k03"), TALK)),
     ("tell a127 p07 nokey", Call("dm", ("a127", "p07 nokey"), TALK)),
     ("hire", Call("hire", ("",), ROSTER)),
     ("fire a000", Call("fire", ("a000",), ROSTER)),
     ("wait", Call("wait", (), WAIT))],
)  # fmt: skip
def test_valid_actions(text, call):
    assert parse_action(text) == call
    assert lang.KINDS[text.split()[0]] is call.kind
    spec = next(tool for tool in CEO_TOOLS if tool.name == call.tool)
    assert spec.kind is call.kind
    assert spec.min_tokens == len(text.split()) == lang.ARITY[text.split()[0]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "unknown_verb"), ("p07", "unknown_verb"), ("Work p07 k03 i05", "unknown_verb"), ("read p07", "unknown_verb"),
     ("work p07 k03", "wrong_length"), ("work p07 k03 i05 i05", "wrong_length"), ("wait wait", "wrong_length"),
     ("work  p07 k03", "wrong_word"), (" wait", "unknown_verb"), ("wait ", "wrong_length"),
     ("work k03 p07 i05", "wrong_word"), ("work p48 k03 i05", "wrong_word"), ("work p07 k16 i05", "wrong_word"),
     ("work p07 k03 i16", "wrong_word"), ("work p07 k03 nokey", "wrong_word"), ("study a000", "wrong_word"),
     ("post p07 p07", "wrong_word"), ("post none none", "wrong_word"), ("tell nobody p07 k03", "wrong_word"),
     ("tell a128 p07 k03", "wrong_word"), ("tell a000 k03 k03", "wrong_word"), ("fire p07", "wrong_word"),
     ("fire nobody", "wrong_word"), ("hire a000", "wrong_length")],
)  # fmt: skip
def test_anything_else_is_invalid_and_says_why(text, reason):
    assert parse_action(text) == Call(reason, (), TurnKind.INVALID)


@given(st.text() | st.lists(st.sampled_from(lang.VOCABULARY), max_size=6).map(" ".join))
def test_any_text_parses_to_a_call_of_a_known_tool_or_an_invalid_one(text):
    call = parse_action(text)
    if call.kind is TurnKind.INVALID:
        assert call.tool in {"unknown_verb", "wrong_length", "wrong_word"}
    else:
        assert call.tool in {tool.name for tool in CEO_TOOLS}
        assert set(text.split(" ")) <= set(lang.VOCABULARY)


def test_shortest_calls_bound_the_lookahead():
    # Tokens and tool seconds of each: with 2 tokens/s and 0.5 s overhead the shortest is 2.0 s (post, wait, hire).
    assert {tool.name: (tool.min_tokens, tool.min_tool_s) for tool in CEO_TOOLS} == {
        "work": (4, 1.0),
        "study": (2, 1.0),
        "post": (3, 0.0),
        "dm": (4, 0.0),
        "wait": (1, 1.0),
        "hire": (1, 1.0),
        "fire": (2, 1.0),
    }
    assert {tool.name for tool in STAFF_TOOLS} == {tool.name for tool in CEO_TOOLS} - {"hire", "fire"}
