"""The rules of workshop@1 on the hand-written task of conftest.py: every result code, its seconds and its reward."""

import pytest

from envs.workshop.environment import WorkshopEnvironment
from rlcr_core.errors import EnvironmentFault
from rlcr_core.types import Call, CallResult

FIFTH = pytest.approx(0.2)  # M = 5


def test_root_takes_four_seconds_a_unit_and_shows_the_key(workshop, play):
    # p07 i00 has 2 units: 2 * 4 s = 8 s.
    seconds, result = play(0, "work p07 nokey i00")
    assert seconds == 8.0
    assert (result.ok, result.code, result.args, result.reward) == (True, "done", ("p07", "k03"), FIFTH)
    assert result.info == {"units": 2.0}
    assert workshop.earned() == FIFTH


def test_dependents_are_locked_until_their_root_is_finished(play):
    assert play(0, "work p07 k03 i01") == (1.0, CallResult(False, "locked", ("p07", "i01"), 0.0, {"failed": 1.0}))
    play(0, "work p07 nokey i00")
    seconds, result = play(0, "work p07 k03 i01")
    assert (seconds, result.code, result.args, result.reward) == (4.0, "done", ("p07", "i01"), FIFTH)


def test_a_module_waits_for_dependencies_in_other_packages(play):
    # p21 i01 needs p21 i00 and p07 i01, which needs p07 i00.
    for text in ("work p21 nokey i00", "work p07 nokey i00"):
        play(0, text)
        assert play(0, "work p21 k09 i01")[1].code == "locked"
    play(0, "work p07 k03 i01")
    assert play(0, "work p21 k09 i01")[0] == 8.0  # 2 units


def test_missing_key_fails_fast_and_wrong_key_costs_the_work(workshop, play):
    play(0, "work p07 nokey i00")
    assert play(0, "work p07 nokey i01") == (1.0, CallResult(False, "needkey", ("p07", "i01"), 0.0, {"failed": 1.0}))
    seconds, result = play(0, "work p07 k04 i01")  # the key is k03
    assert (seconds, result.code, result.args) == (4.0, "bad", ("p07", "i01"))
    assert result.info == {"failed": 1.0, "units": 1.0}
    assert workshop.earned() == FIFTH  # the root alone


@pytest.mark.parametrize("key", ["nokey", "k03", "k15"])
def test_a_module_without_coupling_takes_any_key(play, key):
    play(0, "work p07 nokey i00")
    seconds, result = play(0, f"work p07 {key} i02")  # 3 units, no key needed
    assert (seconds, result.code, result.info) == (12.0, "done", {"units": 3.0})


def test_whoever_finishes_second_has_worked_for_nothing(workshop):
    call = workshop.parse(0, "work p21 nokey i00")
    assert workshop.begin(0, call, 0.0) == workshop.begin(1, call, 1.0) == 4.0
    assert workshop.finish(0, call, 4.0).code == "done"
    result = workshop.finish(1, call, 5.0)
    assert result == CallResult(False, "dup", ("p21", "i00"), 0.0, {"duplicate": 1.0, "units": 1.0})
    assert workshop.earned() == FIFTH


def test_a_wrong_key_is_reported_before_a_duplicate(workshop, play):
    play(0, "work p07 nokey i00")
    wrong, right = workshop.parse(1, "work p07 k00 i01"), workshop.parse(0, "work p07 k03 i01")
    workshop.begin(1, wrong, 0.0)
    workshop.begin(0, right, 0.0)
    workshop.finish(0, right, 4.0)
    assert workshop.finish(1, wrong, 4.0).code == "bad"


def test_finished_modules_and_unknown_places_fail_fast(play):
    play(0, "work p21 nokey i00")
    assert play(0, "work p21 nokey i00") == (1.0, CallResult(False, "already", ("p21", "i00"), 0.0, {"failed": 1.0}))
    # p21 has the modules i00 and i01 only; p00 is in no package of this task.
    assert play(0, "work p21 nokey i02") == (1.0, CallResult(False, "unknown", ("p21", "i02"), 0.0, {"failed": 1.0}))
    assert play(0, "work p00 nokey i00")[1].code == "unknown"
    assert play(0, "study p00") == (1.0, CallResult(False, "unknown", ("p00",), 0.0, {"failed": 1.0}))


def test_a_quick_failure_stays_one_even_if_the_module_opens_meanwhile(workshop, play):
    call = workshop.parse(1, "work p07 k03 i01")
    assert workshop.begin(1, call, 0.0) == 1.0  # locked at begin
    play(0, "work p07 nokey i00")
    assert workshop.finish(1, call, 1.0).code == "locked"


def test_study_takes_24_seconds_and_gives_the_key(play):
    assert play(0, "study p21") == (24.0, CallResult(True, "learned", ("p21", "k09")))


def test_the_whole_project_earns_one(workshop, play):
    for n, text in enumerate(
        ["work p07 nokey i00", "work p07 k03 i01", "work p07 nokey i02", "work p21 nokey i00", "work p21 k09 i01"]
    ):
        assert not workshop.done()
        assert workshop.earned() == pytest.approx(n / 5)
        play(n % 2, text)
    assert workshop.done()
    assert workshop.earned() == 1.0


def test_received_key_says_whether_the_key_was_known_from_a_message_only(workshop, play, look):
    play(0, "work p07 nokey i00")  # agent 0 found k03 itself
    workshop.observe(look(agent=0, new_messages=(("a005", "p07 k03"), ("a005", "p21 k09"))))
    assert play(0, "work p07 k03 i01")[1].info == {"units": 1.0, "received_key": 0.0}
    play(1, "work p21 nokey i00")  # agent 1 found k09, agent 0 was told
    assert play(0, "work p21 k09 i01")[1].info == {"units": 2.0, "received_key": 1.0}


def test_begin_and_finish_come_in_pairs(workshop):
    call = workshop.parse(0, "study p07")
    with pytest.raises(EnvironmentFault, match="without a begin"):
        workshop.finish(0, call, 1.0)
    workshop.begin(0, call, 0.0)
    with pytest.raises(EnvironmentFault, match="begin was called twice for agent 0"):
        workshop.begin(0, call, 1.0)
    with pytest.raises(EnvironmentFault, match="runs the tools work and study, got 'post'"):
        workshop.begin(1, Call("post", ("general", "p07 k03")), 0.0)


def test_names_are_a_permutation_drawn_from_the_tasks_seed(workshop, tiny_task):
    names = [workshop.agent_name(agent) for agent in range(128)]
    assert sorted(names) == [f"a{i:03d}" for i in range(128)]
    again = WorkshopEnvironment(tiny_task)
    assert [again.agent_name(agent) for agent in range(128)] == names
    with pytest.raises(EnvironmentFault, match=r"128 agents.*agent number 128; lower collective.max_hires"):
        workshop.agent_name(128)


def test_judge_and_corrupt(workshop):
    assert workshop.judge(0, "p07 k03") == {"true": 1.0}
    assert workshop.judge(0, "p07 k09") == {"true": 0.0}
    assert workshop.judge(0, "p00 k03") == {"true": 0.0}  # no such package here
    assert workshop.judge(0, "p07 nokey") == {"true": 0.0}
    assert workshop.judge(0, "hello") == workshop.judge(0, "p07 k03 k03") == {}
    # Over many seeds each of the 15 other keys comes up, never the same one, and the package stays.
    scrambled = {workshop.corrupt("p07 k03", seed) for seed in range(500)}
    assert scrambled == {f"p07 k{i:02d}" for i in range(16) if i != 3}
    assert workshop.corrupt("p07 k03", 5) == workshop.corrupt("p07 k03", 5)
    assert workshop.corrupt("p07 nokey", 5) == "p07 nokey"
