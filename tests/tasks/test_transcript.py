"""A rollout to be read: turns in order of their end, texts escaped, long prompts folded."""

from __future__ import annotations

from rlcr_core.types import AgentRecord, Rollout, RolloutKey, StopReason, Turn, TurnKind
from tasks.transcript import LONG, transcript_page, turn_rows


class Letters:
    """Ids are code points."""

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(i) for i in ids)


def a_rollout() -> Rollout:
    letters = Letters()

    def turn(agent: int, index: int, start_s: float, end_s: float, read: str, said: str, cut: bool = False) -> Turn:
        ids = letters.encode(said)
        logprobs = [0.0] * len(ids)
        kind, tool = TurnKind.WORK, "work"
        return Turn(agent, index, 0, letters.encode(read), ids, logprobs, start_s, end_s, kind, 0, tool, "done", cut)

    agents = [AgentRecord(0, "ann", 0.0, 0.0), AgentRecord(1, "bob", 1.0, 2.0)]
    turns = {0: [turn(0, 0, 0.0, 3.0, "x" * (LONG + 1), "<b>first</b>")], 1: [turn(1, 0, 2.0, 2.5, "open", "second", True)]}
    return Rollout(RolloutKey("r", 0, 0, 0), "task-7", 3.0, 1, agents, turns, [], StopReason.DEADLINE, 3.0)


def test_turns_are_ordered_by_their_end_and_named() -> None:
    rows = turn_rows(a_rollout(), Letters())
    # bob's turn ends at 2.5 s, ann's at 3.0 s.
    assert [(row["name"], row["said"], row["cut"], row["is_long"]) for row in rows] == [
        ("bob", "second", True, False), ("ann (CEO)", "<b>first</b>", False, True),
    ]  # fmt: skip


def test_the_page_escapes_what_agents_say_and_folds_long_prompts() -> None:
    page = transcript_page(a_rollout(), Letters(), "One rollout")
    assert "&lt;b&gt;first&lt;/b&gt;" in page and "<b>first" not in page
    assert page.count("<details>") == 1 and "task-7" in page and "cut by the deadline" in page
