"""check_environment names the rule that an environment breaks while it is played."""

import dataclasses
import random

import pytest

import envs
from envs.checks import check_environment
from envs.workshop.environment import WorkshopEnvironment
from rlcr_core.errors import EnvironmentFault


class TooQuick(WorkshopEnvironment):
    def begin(self, agent, call, time_s):
        return min(0.5, super().begin(agent, call, time_s))


class EarnsAtBegin(WorkshopEnvironment):
    def begin(self, agent, call, time_s):
        self._n_finished += 1
        return super().begin(agent, call, time_s)


class FinishesAnything(WorkshopEnvironment):
    def finish(self, agent, call, time_s):
        if agent not in self._pending:
            self.begin(agent, call, time_s)
        return super().finish(agent, call, time_s)


class WrongRefusal(WorkshopEnvironment):
    def finish(self, agent, call, time_s):
        if agent not in self._pending:
            raise KeyError(agent)
        return super().finish(agent, call, time_s)


class Punishes(WorkshopEnvironment):
    def finish(self, agent, call, time_s):
        result = super().finish(agent, call, time_s)
        return result if result.ok else dataclasses.replace(result, reward=-0.1)


class EarnsDouble(WorkshopEnvironment):
    def earned(self):
        return 2 * super().earned()


class AskingCosts(WorkshopEnvironment):
    """Every question for what was earned opens a gap in the board: asking changes what is seen."""

    asked = 0

    def earned(self):
        self.asked += 1
        return super().earned()

    def observe(self, view):
        return super().observe(dataclasses.replace(view, n_hired=self.asked % 3))


class Reopens(WorkshopEnvironment):
    n = 0

    def done(self):
        self.n += super().done()
        return super().done() and self.n < 3


class PaysAfterDone(WorkshopEnvironment):
    extra = 0.0

    def finish(self, agent, call, time_s):
        was_done = self.done()
        result = super().finish(agent, call, time_s)
        if not was_done:
            return result
        self.extra += 0.1
        return dataclasses.replace(result, reward=0.1)

    def earned(self):
        return super().earned() + self.extra


class GlobalRandom(WorkshopEnvironment):
    def observe(self, view):
        return super().observe(dataclasses.replace(view, seed=random.getrandbits(60)))


class Shared(WorkshopEnvironment):
    """State that outlives an attempt."""

    runs = 0

    def __init__(self, task):
        super().__init__(task)
        Shared.runs += 1

    def observe(self, view):
        return super().observe(dataclasses.replace(view, seed=view.seed + Shared.runs))


class Raises(WorkshopEnvironment):
    def begin(self, agent, call, time_s):
        raise ZeroDivisionError("oops")


@pytest.mark.parametrize(
    ("broken", "message"),
    [(TooQuick, "^begin: .* takes 0.5 s, expected finite seconds >= its min_tool_s 1.0"),
     (EarnsAtBegin, "^begin: .* earned before its finish"),
     (FinishesAnything, "^finish: .* was accepted without a begin"),
     (WrongRefusal, "^finish: without a begin it raised KeyError"),
     (Punishes, "^finish: .* was rewarded -0.1"),
     (EarnsDouble, r"^earned: earned\(\) is .*, the sum of the rewards"),
     (AskingCosts, "^determinism: two runs with equal seeds differ"),
     (Reopens, r"^done: done\(\) was true and is false again"),
     (PaysAfterDone, "^done: .* was rewarded after done"),
     (GlobalRandom, "^determinism: two runs with equal seeds differ"),
     (Shared, "^determinism: two runs with equal seeds differ"),
     (Raises, r"^errors: a legal call raised ZeroDivisionError\('oops'\)")],
)  # fmt: skip
def test_each_broken_rule_is_named(tiny_task, broken, message):
    with pytest.raises(EnvironmentFault, match=message):
        check_environment(broken, tiny_task)


def test_an_environment_that_never_acts_is_not_called_checked(tiny_task):
    with pytest.raises(EnvironmentFault, match=r"^coverage: "):
        check_environment(envs.make, tiny_task, actions=lambda text, rng: "wait")
