"""What the workshop says for metrics: which message a success relied on, and how much work the task has."""

import pytest

from envs.checks import check_environment
from envs.workshop.environment import WorkshopEnvironment
from rlcr_core.errors import EnvironmentFault
from rlcr_core.types import Measured


def test_a_keyed_build_relied_on_the_fact_that_the_agent_was_told(workshop, play, look):
    # Roots need no key: they rely on no message, whatever was said.
    workshop.observe(look(agent=0, new_messages=(("a005", "p07 k03"), ("a005", "p21 k09"))))
    assert play(0, "work p07 nokey i00")[1].uses == ()
    play(1, "work p21 nokey i00")
    assert play(0, "work p07 k03 i01")[1].uses == ()  # it has found k03 itself by finishing the root
    assert play(0, "work p21 k09 i01")[1].uses == ("p21 k09",)


def test_a_key_that_was_guessed_or_work_that_failed_relied_on_nothing(workshop, play, look):
    play(0, "work p07 nokey i00")
    assert play(1, "work p07 k03 i01")[1].uses == ()  # agent 1 was never told
    assert play(1, "work p07 k03 i01")[1].uses is None  # done already


def test_the_work_of_the_tiny_task(workshop):
    # Units 2 + 1 + 3 + 1 + 2 = 9 of 4 s. Chains: p07 i00, i01, p21 i01: 2 + 1 + 2 = 5; p07 i00, i02: 2 + 3 = 5.
    assert isinstance(workshop, Measured)
    assert workshop.task_facts() == {"total_work_s": 36.0, "critical_path_s": 20.0, "unit_s": 4.0}


class Endless(WorkshopEnvironment):
    def task_facts(self):
        return {**super().task_facts(), "critical_path_s": 37.0}


class Unitless(WorkshopEnvironment):
    def task_facts(self):
        return {"total_work_s": 36.0, "critical_path_s": 20.0}


@pytest.mark.parametrize(("broken", "detail"), [(Endless, "no longer than all the work"), (Unitless, "unit_s = 0.0")])
def test_the_check_names_facts_that_cannot_be(tiny_task, broken, detail):
    with pytest.raises(EnvironmentFault, match=f"measured: .*{detail}"):
        check_environment(broken, tiny_task)
