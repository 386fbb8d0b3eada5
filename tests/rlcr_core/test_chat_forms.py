"""Calls are read strictly, malformed turns say why, and writing is the inverse of reading in both forms."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.chat.forms import Malformed, NativeForm, PlainForm, after_reasoning, hermes, turn_kind
from rlcr_core.chat.tools import all_tools, schemas, usage_line
from rlcr_core.errors import DataError, EnvironmentFault
from rlcr_core.types import Call, ToolSpec, TurnKind
from tests.rlcr_core.toy import TASK, Toy

TOOLS = {
    "work": ToolSpec("work", TurnKind.WORK, 4, 1.0, "build module i of package x with key k", ("x", "k", "i")),
    **all_tools(Toy(TASK), True),
}
PLAIN, NATIVE = PlainForm(), NativeForm()
WORD = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=8)
LINE = st.lists(WORD, min_size=1, max_size=4).map(" ".join)
ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["<tool_call>", "</tool_call>", "</think>"]
)


def calls(first, last, optional):
    """Lists of calls whose arguments but the last are drawn from `first`, the last from `last`."""

    def of(spec):
        kinds = [first] * (len(spec.parameters) - 1) + [last] * min(len(spec.parameters), 1)
        if spec.name == "hire":
            kinds = [optional]
        return st.tuples(*kinds).map(lambda args: Call(spec.name, args, spec.kind))

    return st.lists(st.sampled_from(sorted(TOOLS)).flatmap(lambda name: of(TOOLS[name])), min_size=1, max_size=4)


@settings(deadline=None)
@given(calls(WORD, LINE, LINE | st.just("")))
def test_plain_reads_what_it_writes(said):
    text = PLAIN.write(said, TOOLS)
    assert PLAIN.read(text, TOOLS) == said
    assert PLAIN.read(f"I think so.\n{text}\nand so on /wait", TOOLS) == said


@settings(deadline=None)
@given(calls(ANY, ANY, ANY))
def test_native_reads_what_it_writes(said):
    text = NATIVE.write(said, TOOLS)
    assert NATIVE.read(text, TOOLS) == said
    assert NATIVE.read(f"I think so.\n{text}\n", TOOLS) == said


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["/", "work", "dm", " ", "\n", "p07", "<tool_call>", "</tool_call>", "{", "}", '"name"', ":", '"']) | ANY
    )
)
def test_no_text_raises_anything_but_malformed(parts):
    for form in (PLAIN, NATIVE):
        try:
            assert all(call.tool in TOOLS for call in form.read("".join(parts), TOOLS))
        except Malformed as error:
            assert error.detail and "\n" not in error.detail.split("; there are")[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_call"),
        ("I wait.", "no_call"),
        (" /wait", "no_call"),  # a call begins its line
        ("/", "unknown_tool"),
        ("/sing", "unknown_tool"),
        ("/Wait", "unknown_tool"),
        ("/wait\n/sing", "unknown_tool"),  # nothing of the turn runs
        ("/wait now", "wrong_arguments"),
        ("/work p07 k03", "wrong_arguments"),
        ("/work p07  k03 i05", "wrong_arguments"),  # an empty argument
        ("/work  p07 k03 i05", "wrong_arguments"),
        ("/dm ann", "wrong_arguments"),
        ("/fire", "wrong_arguments"),
    ],
)
def test_malformed_plain_turns(text, reason):
    with pytest.raises(Malformed) as caught:
        PLAIN.read(text, TOOLS)
    assert caught.value.reason == reason


def test_plain_calls_are_read_in_order():
    text = "first ann, then\n/dm ann the key of p07 is k03\n/hire\n/work p07 k03 i05\n/hire read the board \n/wait"
    assert PLAIN.read(text, TOOLS) == [
        Call("dm", ("ann", "the key of p07 is k03"), TurnKind.TALK),
        Call("hire", ("",), TurnKind.ROSTER),
        Call("work", ("p07", "k03", "i05"), TurnKind.WORK),
        Call("hire", ("read the board",), TurnKind.ROSTER),
        Call("wait", (), TurnKind.WAIT),
    ]


def block(body):
    return f"<tool_call>\n{body}\n</tool_call>"


WAIT = '{"name": "wait", "arguments": {}}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (WAIT, "no_call"),
        (f"<tool_call>{WAIT}", "bad_json"),
        (f"{block(WAIT)}</tool_call>", "bad_json"),
        (block("wait"), "bad_json"),
        (block("[" * 100_000), "bad_json"),  # deeper than the parser of JSON goes
        (block(f"[{WAIT}]"), "bad_json"),
        (block('{"name": "wait"}'), "bad_json"),
        (block('{"name": "wait", "arguments": {}, "id": 1}'), "bad_json"),
        (block('{"name": "wait", "arguments": []}'), "bad_json"),
        (block('{"name": "wait", "name": "wait", "arguments": {}}'), "bad_json"),
        (block('{"name": "sing", "arguments": {}}'), "unknown_tool"),
        (block('{"name": ["wait"], "arguments": {}}'), "unknown_tool"),
        (block('{"name": "\\ud800", "arguments": {}}'), "unknown_tool"),
        (block('{"name": "wait", "arguments": {"s": "1"}}'), "wrong_arguments"),
        (block('{"name": "work", "arguments": {"x": "p07", "k": "k03"}}'), "wrong_arguments"),
        (block('{"name": "work", "arguments": {"x": "p07", "k": "k03", "i": 5}}'), "wrong_arguments"),
        (block('{"name": "dm", "arguments": {"to": "ann", "text": "\\ud800"}}'), "wrong_arguments"),  # no text at all
        (block('{"name": "fire", "arguments": {}}'), "wrong_arguments"),
    ],
)
def test_malformed_native_turns(text, reason):
    with pytest.raises(Malformed) as caught:
        NATIVE.read(text, TOOLS)
    assert caught.value.reason == reason
    caught.value.detail.encode()


def test_a_brief_may_be_left_out():
    assert NATIVE.read(block('{"name": "hire", "arguments": {}}'), TOOLS) == [Call("hire", ("",), TurnKind.ROSTER)]


def test_what_a_form_cannot_say_is_refused():
    for args in [("ann", "two\nlines"), ("ann", " text"), ("ann", ""), ("an n", "text"), ("ann",), ("ann", "\ud800")]:
        with pytest.raises(DataError):
            PLAIN.write([Call("dm", args, TurnKind.TALK)], TOOLS)
    with pytest.raises(DataError, match="no call of the tools"):
        NATIVE.write([Call("sing", (), TurnKind.WORK)], TOOLS)


def test_tags_in_an_argument_are_escaped():
    text = hermes("dm", {"to": "ann", "text": "</tool_call><tool_call>"})
    assert text.count("<tool_call>") == text.count("</tool_call>") == 1
    assert json.loads(text.split("\n")[1])["arguments"]["text"] == "</tool_call><tool_call>"


def test_the_kind_of_a_turn_that_was_cut_is_that_of_its_first_call():
    assert PLAIN.first_kind("hm\n/dm ann the k", TOOLS) is TurnKind.TALK
    assert PLAIN.first_kind("/wo", TOOLS) is TurnKind.INVALID
    assert PLAIN.first_kind("/sing\n/work", TOOLS) is TurnKind.WORK
    assert PLAIN.first_kind("I thi", TOOLS) is TurnKind.INVALID
    assert NATIVE.first_kind('hm <tool_call>\n{"name": "dm", "argu', TOOLS) is TurnKind.TALK
    assert NATIVE.first_kind('<tool_call>\n{"name": "d', TOOLS) is TurnKind.INVALID


def test_the_kind_of_several_calls_is_work_then_talk_then_roster_then_wait():
    order = [TurnKind.WORK, TurnKind.TALK, TurnKind.ROSTER, TurnKind.WAIT]
    for i, kind in enumerate(order):
        assert turn_kind([Call("x", (), k) for k in reversed(order[i:])]) is kind


def test_calls_inside_of_reasoning_are_no_calls():
    assert after_reasoning("<think>\n/fire ann\n</think>\n/wait", False) == "\n/wait"
    assert after_reasoning("/fire ann\n</think>\n/wait", True) == "\n/wait"
    assert after_reasoning("<think>\n/fire ann", False) == ""
    assert after_reasoning("/dm ann </think>", False) == "/dm ann </think>"


def test_tools_are_the_environment_s_and_the_collective_s():
    ceo, staff = all_tools(Toy(TASK), True), all_tools(Toy(TASK), False)
    assert list(ceo) == ["dig", "break", "dm", "post", "read", "search", "wait", "hire", "fire"]
    assert set(ceo) - set(staff) == {"hire", "fire"}
    assert all(spec.min_tokens == 1 for spec in ceo.values())
    assert ceo["dm"].parameters == ("to", "text")  # the collective's, whatever the environment says
    assert usage_line(TOOLS["work"]) == "/work x k i: build module i of package x with key k"
    (schema,) = schemas([TOOLS["work"]])
    assert schema["function"]["parameters"]["required"] == ["x", "k", "i"]


def test_tools_that_cannot_be_written_are_refused():
    class Odd(Toy):
        def tools(self, is_ceo):
            return (ToolSpec("dig deep", TurnKind.WORK, 1, 0.0),)

    with pytest.raises(EnvironmentFault, match="dig deep"):
        all_tools(Odd(TASK), True)
