"""Traces of sampled rollouts: which ones, where their bars lie, what hangs on them, and that a failure is one warning."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from rlcr_core.config import Params
from rlcr_core.errors import ConfigError, StoreError
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import AgentRecord, Event, EventType, Rollout, RolloutKey, StopReason, Turn, TurnKind
from tasks import training
from tasks.paths import Project
from tasks.spans import Pick, build_spans, pick_rollouts
from tasks.timings import Timings
from tasks.traces import at_ns, log_traces, write_traces
from tasks.tracking import Tracker, open_run
from tests.support import NoTracker, rollout

WORDS = WordTokenizer(["hire", "made", "build", "key", "red", "dm"])  # ids 2 to 7
ZERO_NS = 1_700_000_000 * 10**9
TAGS = {"run": "collective-0", "pick": "best"}


def turn(agent: int, index: int, start_s: float, end_s: float, kind: TurnKind, tool: str, code: str, **more: Any) -> Turn:
    """A turn that read `made key` and said `build red`; two tokens with a mean logprob of (-0.5 - 1.5) / 2 = -1."""
    ids = {"observation_ids": [3, 5], "action_ids": [4, 6], "logprobs": [-0.5, -1.5]}
    return Turn(
        agent, index, 0, **ids, start_s=start_s, end_s=end_s, kind=kind, policy_version=7, tool=tool, code=code,
        prompt_tokens=2, **more,
    )  # fmt: skip


def written_rollout() -> Rollout:
    """The CEO hires kim, who starts at 3 s and sends a message at 4.5 s; the CEO, at work until 5 s, is shown it then."""
    made = Rollout(RolloutKey("collective-0", 7, 1, 2), "task-1", 10.0, 1, stop_reason=StopReason.DEADLINE, end_s=10.0)
    made.agents = [AgentRecord(0, "ada", 0.0, 0.0), AgentRecord(1, "kim", 2.0, 3.0)]
    made.trajectories = {
        0: [
            turn(0, 0, 0.0, 2.0, TurnKind.ROSTER, "hire", "hired"),
            turn(0, 1, 2.0, 5.0, TurnKind.WORK, "build", "done"),
            turn(0, 2, 5.0, 6.25, TurnKind.ROSTER, "hire", "full"),
        ],
        1: [
            turn(1, 0, 3.0, 4.5, TurnKind.TALK, "dm", "sent"),
            turn(1, 1, 4.5, 8.0, TurnKind.WORK, "build", "bad"),
            turn(1, 2, 8.0, 10.0, TurnKind.INVALID, "unknown_word", "", cut=True),
        ],
    }
    made.events = [
        Event(2.0, EventType.HIRE, 0, 1),
        Event(3.0, EventType.START, 1),
        Event(4.5, EventType.MESSAGE, 1, 0, 1.0, "key red"),
        Event(5.0, EventType.DELIVERY, 0, 1, 4.5, "key red"),
        Event(5.0, EventType.WORK, 0, -1, 0.25, "done duplicate=0"),
        Event(5.0, EventType.REWARD, 0, -1, 0.25),
        Event(8.0, EventType.WORK, 1, -1, 0.0, "bad failed=1"),
    ]
    return made


def test_bars_lie_where_the_clock_put_the_turns_and_agents_overlap() -> None:
    spans = build_spans(Pick("best", written_rollout(), 0.125), WORDS)
    assert [(s.name, s.parent, s.start_s, s.end_s) for s in spans] == [
        ("collective-0 iteration 7 group 1: best", -1, 0.0, 10.0),
        ("ada (CEO)", 0, 0.0, 10.0),
        ("roster hire", 1, 0.0, 2.0),
        ("work build", 1, 2.0, 5.0),
        ("roster hire", 1, 5.0, 6.25),
        ("kim", 0, 2.0, 10.0),  # from its hiring; it may act from 3 s
        ("talk dm", 5, 3.0, 4.5),  # while ada works: 2 s to 5 s
        ("work build", 5, 4.5, 8.0),
        ("invalid unknown_word", 5, 8.0, 10.0),
    ]
    assert (spans[3].inputs, spans[3].outputs) == ("made key", "build red")
    told = {"kind": "work", "tool": "build", "code": "done", "tokens": 2, "prompt_tokens": 2, "logprob_mean": -1.0}
    assert told.items() <= spans[3].attributes.items()
    # The group's mean is the return less the advantage: 0.25 - 0.125.
    told = {"return": 0.25, "advantage": 0.125, "group_mean": 0.125, "limit_s": 10.0, "hires": 1, "messages": 1, "tokens": 12}
    assert told.items() <= spans[0].attributes.items()
    assert spans[0].attributes["turns_left_out"] == spans[0].attributes["agents_left_out"] == 0


def test_events_hang_on_the_turn_that_ended_with_them_and_a_delivery_on_the_one_that_showed_it() -> None:
    spans = build_spans(Pick("best", written_rollout()), WORDS)
    assert [[(time_s, name) for time_s, name, _ in span.events] for span in spans] == [
        [], [], [(2.0, "hire")], [(5.0, "work"), (5.0, "reward")], [(5.0, "delivery")],
        [(3.0, "start")], [(4.5, "message")], [(8.0, "work")], [],
    ]  # fmt: skip
    assert spans[6].events[0][2] == {"time_s": 4.5, "value": 1.0, "text": "key red", "to": "ada"}
    assert spans[4].events[0][2] == {"time_s": 5.0, "value": 4.5, "text": "key red", "from": "kim"}
    assert "advantage" not in spans[0].attributes


def test_malformed_refused_and_failed_turns_are_errors_with_their_reason() -> None:
    spans = build_spans(Pick("best", written_rollout()), WORDS)
    assert [span.error for span in spans] == ["", "", "", "", "hire: full", "", "", "bad", "invalid: unknown_word"]
    failed = written_rollout()
    failed.stop_reason, failed.error, failed.end_s = StopReason.FAILED, "EngineFault: gone", 0.0
    root = build_spans(Pick("worst", failed), WORDS)[0]
    assert (root.error, root.end_s) == ("EngineFault: gone", 10.0)  # as long as its last turn


def test_a_large_rollout_keeps_whole_agents_in_the_order_of_their_hiring_and_says_what_is_left_out() -> None:
    """Room for 7: the rollout, ada with 3 turns, kim with 1 of 3; the turns of kim at 8 s and 10 s are left out."""
    spans = build_spans(Pick("best", written_rollout()), WORDS, max_spans=7)
    assert [s.name for s in spans[5:]] == ["kim", "talk dm"]
    assert (spans[0].attributes["turns_left_out"], spans[0].attributes["agents_left_out"]) == (2, 0)
    assert [name for _, name, _ in spans[5].events] == ["start"]  # not the work event of a turn that is not there
    spans = build_spans(Pick("best", written_rollout()), WORDS, max_spans=6)  # kim and no turn would be no lane
    assert (len(spans), spans[0].attributes["turns_left_out"], spans[0].attributes["agents_left_out"]) == (5, 3, 1)
    with pytest.raises(ConfigError, match="max_spans 2, expected 3"):
        build_spans(Pick("best", written_rollout()), WORDS, max_spans=2)


def test_a_turn_that_reads_a_crowd_keeps_a_hundred_events_and_counts_the_rest() -> None:
    crowd = written_rollout()
    crowd.events = [Event(5.0, EventType.DELIVERY, 0, 1, 4.5, "key red")] * 130
    span = build_spans(Pick("best", crowd), WORDS)[4]
    assert (len(span.events), span.attributes["events_left_out"]) == (100, 30)


def earning(group: int, returns: list[float]) -> list[Rollout]:
    return [rollout(group, i, events=[Event(3.0, EventType.REWARD, 0, -1, r)]) for i, r in enumerate(returns)]


def names(picks: list[Pick]) -> list[tuple[str, int, int, float | None]]:
    return [(p.name, p.rollout.key.group, p.rollout.key.rollout, p.advantage) for p in picks]


def test_the_group_with_the_largest_spread_gives_its_best_worst_and_median() -> None:
    """Group 1 spreads 0.75 with the mean (0 + 0.75 + 0.25 + 0.5) / 4 = 0.375, group 0 only 0.5."""
    rollouts = [*earning(0, [0.5, 1.0, 1.0, 0.75]), *earning(1, [0.0, 0.75, 0.25, 0.5])]
    assert names(pick_rollouts(rollouts)) == [("best", 1, 1, 0.375), ("worst", 1, 0, -0.375), ("median", 1, 2, -0.125)]
    assert names(pick_rollouts(rollouts[::-1])) == names(pick_rollouts(rollouts))


def test_no_rollout_is_shown_twice_and_ties_have_an_order() -> None:
    assert names(pick_rollouts(earning(0, [0.5, 0.5]))) == [("best", 0, 1, 0.0), ("worst", 0, 0, 0.0)]
    assert pick_rollouts([]) == []
    # One rollout a task: compared across tasks, without an advantage.
    singles = [earning(group, [value])[0] for group, value in enumerate([0.5, 0.0, 1.0])]
    assert names(pick_rollouts(singles)) == [("best", 2, 0, None), ("worst", 1, 0, None), ("median", 0, 0, None)]
    assert names(pick_rollouts(singles[:1])) == [("best", 0, 0, None)]


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory, params: Params) -> Iterator[Tracker]:
    """A run of a store of its own, open while this module's tests run."""
    root = tmp_path_factory.mktemp("traced")
    with open_run(Project(root), params, "collective-0", root / "mlflow.json", {}) as run:
        yield run


def stored(tracker: Tracker, **tags: str) -> list[Any]:
    wanted = " AND ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
    client = tracker.mlflow.MlflowClient()
    found: list[Any] = client.search_traces(locations=[tracker.experiment_id], filter_string=wanted, run_id=tracker.run_id)
    return found


def test_the_store_keeps_seconds_as_nanoseconds_parents_states_and_tokens(tracker: Tracker) -> None:
    spans = build_spans(Pick("best", written_rollout(), 0.125), WORDS)
    write_traces(tracker, [(spans, TAGS)], ZERO_NS)
    (trace,) = stored(tracker, **TAGS)
    assert trace.info.request_time == 1_700_000_000_000 and trace.info.execution_duration == 10_000  # milliseconds
    assert trace.info.token_usage == {"input_tokens": 12, "output_tokens": 12, "total_tokens": 24}  # 6 turns of 2 and 2
    found = {(s.name, s.start_time_ns - ZERO_NS): s for s in trace.data.spans}
    assert len(found) == len(spans)
    for span in spans:
        kept = found[span.name, round(span.start_s * 1e9)]
        assert kept.end_time_ns - ZERO_NS == round(span.end_s * 1e9)
        assert kept.status.status_code.value == ("ERROR" if span.error else "OK")
        parent = None if span.parent < 0 else found[spans[span.parent].name, round(spans[span.parent].start_s * 1e9)].span_id
        assert kept.parent_id == parent
    (message,) = found["talk dm", 3_000_000_000].events
    assert (message.name, message.timestamp - ZERO_NS, message.attributes["to"]) == ("message", 4_500_000_000, "ada")


def test_what_is_logged_again_makes_no_second_trace(tracker: Tracker) -> None:
    rollouts = earning(0, [0.0, 0.5, 1.0])
    for _ in range(2):
        log_traces(tracker, rollouts, WORDS, {"organisation": "alone"})
    log_traces(tracker, rollouts, WORDS, {"organisation": "base"})
    wait(tracker)
    found = [trace.info.tags for trace in stored(tracker, organisation="alone")]
    assert sorted((tags["pick"], tags["rollout"], tags["run"]) for tags in found) == [
        ("best", "2", "collective-0"), ("median", "1", "collective-0"), ("worst", "0", "collective-0"),
    ]  # fmt: skip
    assert len(stored(tracker, organisation="base")) == 3


def wait(tracker: Tracker) -> None:
    """Until the background has done what it was given: it is one thread, and this comes last."""
    tracker.log({"x": 1.0}, 0)
    tracker.flush()


def test_a_trace_that_mlflow_loses_in_silence_is_one_warning(
    tracker: Tracker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from mlflow.tracing.client import TracingClient

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("disk is full")

    for call in ("log_spans", "start_trace"):  # the second alone would keep the spans as an artifact
        monkeypatch.setattr(TracingClient, call, refuse)
    with pytest.raises(StoreError, match=r"0 of the 9 spans of the trace 'collective-0 iteration 7 group 1: best'"):
        write_traces(tracker, [(build_spans(Pick("best", written_rollout()), WORDS), {"run": "lost"})], ZERO_NS)
    with caplog.at_level(logging.WARNING):
        for group in (4, 5):
            log_traces(tracker, earning(group, [0.0, 1.0]), WORDS)
        wait(tracker)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["No traces in MLflow"]
    monkeypatch.undo()
    log_traces(tracker, earning(6, [0.0]), WORDS)
    wait(tracker)
    assert len(stored(tracker, group="6")) == 1  # the run, and what comes after, goes on


def test_whatever_breaks_a_trace_leaves_the_run_alone(caplog: pytest.LogCaptureFixture) -> None:
    with ThreadPoolExecutor(1) as writer, caplog.at_level(logging.WARNING):
        log_traces(Tracker(None, "sqlite:///x.db", "id", writer), earning(0, [0.0, 1.0]), WORDS)
    assert len(caplog.records) == 1 and "The run goes on without them" in caplog.text


def test_training_logs_traces_of_every_second_iteration_and_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """evaluate_every is 2 of 5 iterations: those numbered 1 and 3, and the last, 4."""
    traced: list[int] = []
    monkeypatch.setattr(training, "log_traces", lambda tracker, rollouts, tokenizer: traced.append(rollouts))
    run = SimpleNamespace(
        params=SimpleNamespace(train=SimpleNamespace(evaluate_every=2, iterations=5)), tracker=NoTracker(),
        history=SimpleNamespace(metrics=[{}] * 5), learner=SimpleNamespace(tokenizer=WORDS),
    )  # fmt: skip
    for number in range(5):
        training.track(SimpleNamespace(run=run, number=number, timings=Timings(), trained=number))  # type: ignore[arg-type]
    assert traced == [1, 3, 4]


def test_seconds_become_whole_nanoseconds() -> None:
    assert at_ns(ZERO_NS, 0.1) - ZERO_NS == 100_000_000  # 0.1 s is no binary fraction
    assert at_ns(ZERO_NS, 84.000001) - ZERO_NS == 84_000_001_000
