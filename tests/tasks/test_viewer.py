"""The viewer of a small rollout written by hand: two agents, one message, a hire, a cut turn; then texts that try to escape."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.errors import DataError
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import AgentRecord, Event, EventType, Rollout, RolloutKey, StopReason, Turn, TurnKind
from tasks import viewer
from tasks.viewer_data import Value, viewer_data
from tasks.viewer_texts import Pieces

WORDS = WordTokenizer(["hire", "post", "work", "wait", "p1", "k1", "none"])


class Bytes:
    """Ids are bytes of UTF-8, so a character may take several."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: list[int]) -> str:
        return bytes(ids).decode(errors="replace")


def turn(agent, index, kind, start_s, end_s, said, tool, code, logprobs, cut=False, tool_s=0.0):
    ids = WORDS.encode(said)
    return Turn(agent, index, index, WORDS.encode("none p1"), ids, logprobs, start_s, end_s, kind, 3, tool, code, cut, 2, tool_s)


def a_rollout(text: str = "p1 k1", number: int = 0, reward: float = 0.25) -> Rollout:
    """Limit 20 s. ann hires bob at 2 s, posts at 6 s; bob is shown it at 7 s, earns with it at 12 s, then duplicates, is cut."""
    agents = [AgentRecord(0, "ann", 0.0, 0.0), AgentRecord(1, "bob", 2.0, 5.0)]
    turns = {
        0: [
            turn(0, 0, TurnKind.ROSTER, 0.0, 2.0, "hire", "hire", "hired", [-0.5], tool_s=1.0),
            turn(0, 1, TurnKind.TALK, 2.0, 6.0, "post p1 k1", "post", "posted", [-0.1, -0.2, -0.3]),
        ],
        1: [
            turn(1, 0, TurnKind.WAIT, 5.0, 7.0, "wait", "wait", "waited", [-1.0], tool_s=1.0),
            turn(1, 1, TurnKind.WORK, 7.0, 12.0, "work p1 k1", "work", "done", [-0.1] * 3, tool_s=4.0),
            turn(1, 2, TurnKind.WORK, 12.0, 16.0, "work p1 k1", "work", "dup", [-0.1] * 3, tool_s=2.0),
            turn(1, 3, TurnKind.WORK, 16.0, 20.0, "work p1", "", "", [-0.1] * 2, cut=True),
        ],
    }
    events = [
        Event(2.0, EventType.HIRE, 0, 1), Event(5.0, EventType.START, 0, 1), Event(6.0, EventType.MESSAGE, 0, -1, 1.0, text),
        Event(7.0, EventType.DELIVERY, 1, 0, 6.0, text), Event(12.0, EventType.WORK, 1, -1, reward, "done uses=1"),
        Event(12.0, EventType.USE, 1, -1, 0.0, text), Event(12.0, EventType.REWARD, 1, -1, reward),
        Event(16.0, EventType.WORK, 1, -1, 0.0, "dup duplicate=1"), Event(20.5, EventType.REWARD, 1, -1, 9.0),
    ]  # fmt: skip
    key = RolloutKey("run", 4, 0, number)
    return Rollout(key, "task-7", 20.0, 1, agents, turns, events, StopReason.DEADLINE, 20.0)


def test_columns_of_a_rollout_written_by_hand() -> None:
    # Group returns 0.25 and 0.75: mean 0.5, advantage 0.25 - 0.5.
    group = [a_rollout(), a_rollout(number=1, reward=0.75)]
    data = viewer_data(group[0], WORDS, group, {0: Value(0.1, -0.05, 0.25)})
    turns, pieces = data["turns"], data["pieces"]
    assert data["agents"] | {"name": 0} == {
        "name": 0, "is_ceo": [1, 0], "hired_s": [0, 2], "started_s": [0, 5], "left_s": [20, 20], "fired": [0, 0],
    }  # fmt: skip
    assert turns["agent"] == [0, 0, 1, 1, 1, 1] and turns["index"] == [0, 1, 0, 1, 2, 3]
    assert [data["kinds"][k] for k in turns["kind"]] == ["roster", "talk", "wait", "work", "work", "work"]
    assert [data["wastes"][w] for w in turns["waste"]] == ["", "", "", "", "duplicate", ""]
    assert turns["earned"] == [0, 0, 0, 0.25, 0, 0]  # the reward after the limit counts for nobody
    assert turns["cut"] == [0, 0, 0, 0, 0, 1] and turns["end_s"] == [2, 6, 7, 12, 16, 20]
    assert turns["n_said"] == [1, 3, 1, 3, 3, 2] and turns["n_read"] == [2] * 6 and turns["tool_s"] == [1, 0, 1, 4, 2, 0]
    assert [pieces[p] for p in turns["said"][:5]] == ["hire", "post", "p1", "k1", "wait"] and data["joint"] == " "
    assert [pieces[p] for p in turns["read"][:2]] == ["none", "p1"]
    assert turns["logprobs"][:5] == [-0.5, -0.1, -0.2, -0.3, -1] and len(turns["logprobs"]) == 13
    assert data["messages"] == {"time_s": [6], "sender": [0], "receiver": [-1], "truth": [1], "text": [0], "repost": [0]}
    assert data["deliveries"] == {"message": [0], "agent": [1], "time_s": [7], "altered": [-1], "fresh": [1], "used": [1]}
    assert data["rewards"] == {"time_s": [12], "agent": [1], "value": [0.25]} and data["values"] == {"0": [0.1, -0.05, 0.25]}
    assert (data["facts"]["advantage"], data["facts"]["group_mean"], data["facts"]["group_size"]) == (-0.25, 0.5, 2)
    assert (data["facts"]["tokens"], data["facts"]["prompt_tokens"], data["facts"]["versions"]) == (13, 12, [3])


def test_an_altered_message_keeps_both_texts_and_a_known_one_is_not_new() -> None:
    rollout = a_rollout()
    rollout.events[3:4] = [Event(7.0, EventType.DELIVERY, 1, 0, 6.0, "p1 k2"), Event(8.0, EventType.DELIVERY, 1, 0, 6.0, "p1 k2")]
    data = viewer_data(rollout, WORDS)
    assert [data["texts"][t] for t in data["deliveries"]["altered"]] == ["p1 k2", "p1 k2"]
    assert data["deliveries"]["fresh"] == [1, 0] and data["deliveries"]["used"] == [0, 0]  # the USE names another text
    assert data["facts"]["advantage"] is None


@given(st.text(alphabet="aé日🙂<\n ", max_size=12))
def test_pieces_join_to_the_text_whatever_the_tokens_cut(text: str) -> None:
    tokenizer = Bytes()
    pieces = Pieces(tokenizer)
    ids = tokenizer.encode(text)
    found = pieces.of(ids)
    assert len(found) == len(ids) and "".join(pieces.table.all()[p] for p in found) == text


@pytest.mark.parametrize(
    "text", ["</script><script>alert(1)</script>", "<!--<script>", "]]>&lt;/script>", "\u2028</SCRIPT >", "{{ 7 }}"]
)
def test_no_text_of_an_agent_leaves_the_data_element(text: str) -> None:
    rollout = a_rollout(text)
    rollout.agents[1].name = rollout.task_id = text
    page = viewer.viewer_page(rollout, WORDS)
    element = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert element is not None and not set("<>&\u2028").intersection(element.group(1))
    data = json.loads(element.group(1))
    assert data["texts"] == [text] and data["agents"]["name"][1] == text and data["facts"]["task"] == text
    # One script of the page's own, and the data; the title and all else is escaped.
    assert len(re.findall("<script", page, re.IGNORECASE)) == 2 and len(re.findall("</script", page, re.IGNORECASE)) == 2


def test_equal_rollouts_give_equal_bytes_without_a_network_or_a_machine() -> None:
    page = viewer.viewer_page(a_rollout(), WORDS, [a_rollout()])
    assert page == viewer.viewer_page(a_rollout(), WORDS, [a_rollout()])
    assert not re.search(r"(?:https?:)?//[a-z0-9-]+\.[a-z]", page) and str(Path.cwd()) not in page
    assert "default-src 'none'" in page


def test_choosing_a_rollout() -> None:
    # Returns of group 0: 0.5, 0.1, 0.3, 0.3 by number; the failed one of group 1 is found by its number only.
    rollouts = [a_rollout(number=n, reward=r) for n, r in enumerate((0.5, 0.1, 0.3, 0.3))]
    failed = a_rollout(number=9)
    failed.key, failed.stop_reason = RolloutKey("run", 4, 1, 9), StopReason.FAILED
    every = [*rollouts, failed]
    picked = [viewer.choose(every, pick, None, None).key.rollout for pick in (None, "best", "median", "worst")]
    assert picked == [0, 0, 2, 1]  # sorted 0.1, 0.3, 0.3, 0.5: the lower middle is the first 0.3
    assert viewer.choose(every, None, 0, 3) is rollouts[3] and viewer.choose(every, None, None, 9) is failed
    with pytest.raises(DataError, match=r"group 1 to show; the folder has 5 .*change --group"):
        viewer.choose(every, "best", 1, None)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[]", "not readable as values"),
        ('{"0": {"mean": 1}}', "not readable as values"),
        ('{"1": {"mean": 1, "low": 0, "high": 2}}', "a number from 0 to 0"),
        ('{"0": {"mean": 3, "low": 0, "high": 2}}', "low <= mean <= high"),
    ],
)
def test_values_that_do_not_fit_are_refused(tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "values.json"
    path.write_text(content)
    with pytest.raises(DataError, match=words):
        viewer.read_values(path, a_rollout())


def test_values_are_read_by_the_message_s_number(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    path.write_text('{"0": {"mean": 0.5, "low": 0, "high": 1}}')
    assert viewer.read_values(path, a_rollout()) == {0: Value(0.5, 0.0, 1.0)}


def test_what_cannot_be_shown_is_named() -> None:
    small = WordTokenizer(["hire"])
    with pytest.raises(DataError, match=r"does not know the token ids .*--tokenizer"):
        viewer_data(a_rollout(), small)
    lost = a_rollout()
    del lost.events[2]
    with pytest.raises(DataError, match=r"no message of that agent is on record for 6.0 s"):
        viewer_data(lost, WORDS)
    broken = a_rollout()
    broken.trajectories[0][0].logprobs = [float("nan")]
    with pytest.raises(DataError, match="not finite"):
        viewer.viewer_page(broken, WORDS)


def test_the_tokenizer_is_found_beside_the_rollouts_or_in_the_base_policy(tmp_path: Path) -> None:
    rollouts = tmp_path / "runs" / "r" / "iterations" / "0001" / "rollouts"
    rollouts.mkdir(parents=True)
    base = tmp_path / "artifacts" / "base" / "checkpoint"
    with pytest.raises(DataError, match="--tokenizer"):
        viewer.tokenizer_folder(rollouts, tmp_path)
    for folder in (base, tmp_path / "runs" / "r" / "checkpoints" / "0000"):
        folder.mkdir(parents=True)
        WORDS.save(folder)
        assert viewer.tokenizer_folder(rollouts, tmp_path) == folder
