"""The workshop told to chat models, and the check of that optional side of an environment."""

import pytest

from envs.checks import check_environment
from envs.workshop.environment import WorkshopEnvironment
from rlcr_core.errors import EnvironmentFault
from rlcr_core.types import Described


def test_the_workshop_describes_what_it_shows(workshop, look, play):
    assert isinstance(workshop, Described)
    # Open at first: the roots of both packages, in an order that the view's seed draws.
    assert workshop.describe(look()) in ("open: p07 i00 p21 i00", "open: p21 i00 p07 i00")
    play(0, "work p07 nokey i00")  # shows k03; opens i01 and i02
    text = workshop.describe(look(new_messages=(("a001", "p21 k09"), ("a001", "hello"))))
    board, keys = text.split("\n")
    assert keys == "keys: p07 k03 p21 k09"  # its own before those that it was told; `hello` is no fact
    words = board.split(" ")
    assert words[0] == "open:"
    assert {tuple(words[i : i + 2]) for i in (1, 3, 5)} == {("p07", "i01"), ("p07", "i02"), ("p21", "i00")}


def test_board_and_facts_are_those_of_the_observation(workshop, look, play):
    play(0, "study p21")
    view = look(seed=5, new_messages=(("a001", "p07 k03"),))
    words = workshop.observe(view).text.split()
    board = [word for word in words[words.index("board") + 1 :] if word != "none"]
    assert workshop.describe(view) == f"open: {' '.join(board)}\nkeys: p21 k09 p07 k03"


def test_a_finished_project_has_nothing_open(workshop, look, play):
    for action in ("p07 nokey i00", "p07 k03 i01", "p07 nokey i02", "p21 nokey i00", "p21 k09 i01"):
        play(0, f"work {action}")
    assert workshop.describe(look()).startswith("open: none\n")


def test_rules_name_what_the_tools_take(workshop):
    for is_ceo in (True, False):
        text = workshop.rules(is_ceo)
        assert "reward" in text and "nokey" in text and len(text) < 400


class NoDescribe(WorkshopEnvironment):
    describe = property(lambda self: (_ for _ in ()).throw(AttributeError("describe")))  # type: ignore[assignment]


class NoRules(WorkshopEnvironment):
    def rules(self, is_ceo):
        return ""


class Fickle(WorkshopEnvironment):
    asked = 0

    def describe(self, view):
        self.asked += 1
        return f"{super().describe(view)} {self.asked}"


@pytest.mark.parametrize(
    ("broken", "detail"),
    [(NoDescribe, "expected both"), (NoRules, "expected a text"), (Fickle, "for the same view")],
)
def test_the_check_names_what_is_broken(tiny_task, broken, detail):
    with pytest.raises(EnvironmentFault, match=f"described: .*{detail}"):
        check_environment(broken, tiny_task)
