"""Great Expectations holds the contract of the trajectory tables: every rule that is broken names its turn or rollout.

Rules are expectations on the derived scalars of tasks/trajectory_frames.py. To add a rule: a column there, a line here.
"""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd

from rlcr_core.errors import DataError
from rlcr_core.store import Tables
from rlcr_core.types import StopReason, TurnKind
from tasks.trajectory_frames import frames_of

RETURN_BOUNDS = (0.0, 1.0)  # environments pay shares of one task
ROUNDING = 1e-9
BROKEN = "n_broken_rules"
DETAIL = {"result_format": "COMPLETE", "unexpected_index_column_names": ["row"]}


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken rule at one place; agent and turn are None when the rule is about the whole rollout."""

    rule: str
    group: int
    rollout: int
    agent: int | None
    turn: int | None
    got: str

    def __str__(self) -> str:
        where = "" if self.agent is None else f", agent {self.agent}, turn {self.turn}"
        return f"group {self.group}, rollout {self.rollout}{where}: {self.rule}, got {self.got}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule in words: a column lies in [low, high], or equals another column, or is one of a closed set."""

    text: str
    column: str
    low: float | None = None
    high: float | None = None
    above_low: bool = False
    equals: str | None = None
    among: tuple[Any, ...] | None = None

    def expectation(self, gxe: Any) -> Any:
        if self.equals is not None:
            return gxe.ExpectColumnPairValuesToBeEqual(column_A=self.column, column_B=self.equals)
        if self.among is not None:
            return gxe.ExpectColumnValuesToBeInSet(column=self.column, value_set=list(self.among))
        return gxe.ExpectColumnValuesToBeBetween(
            column=self.column, min_value=self.low, max_value=self.high, strict_min=self.above_low
        )

    def broken(self, frame: pd.DataFrame) -> pd.Series[bool]:
        """Which rows break the rule."""
        values = frame[self.column]
        if self.equals is not None:
            return values != frame[self.equals]
        if self.among is not None:
            return ~values.isin(self.among)
        bad = pd.Series(False, frame.index)
        if self.low is not None:
            bad |= ~(values > self.low) if self.above_low else ~(values >= self.low)
        if self.high is not None:
            bad |= ~(values <= self.high)
        return bad


TURN_RULES = (
    Rule("a turn has at least one sampled token", "n_tokens", low=1),
    Rule("every sampled token has one logprob", "n_tokens", equals="n_logprobs"),
    Rule("logprobs are finite and at most 0", "n_bad_logprobs", high=0),
    Rule("a turn ends at or after its start", "duration_s", low=0),
    Rule("a turn starts before the limit", "left_at_start_s", low=0, above_low=True),
    Rule("a turn ends by the limit or is cut", "overtime_s", high=0),
    Rule("the turn's kind is one of the closed set", "kind", among=tuple(kind.value for kind in TurnKind)),
    Rule("tokens come from the synced weights", "version_gap", low=0, high=0),
    Rule("turn numbers of an agent rise", "index_step", low=1),
    Rule("context numbers of an agent never fall", "context_step", low=0),
    Rule("an agent's turns do not overlap", "idle_s", low=0),
    Rule("the turn's agent is on record", "is_employed", among=(True,)),
)
ROLLOUT_RULES = (
    Rule("a rollout occurs once", "n_occurrences", low=1, high=1),
    Rule("the return is within its bounds", "return", low=RETURN_BOUNDS[0] - ROUNDING, high=RETURN_BOUNDS[1] + ROUNDING),
    Rule("the return is the sum of the rewards by the limit", "return_gap", high=ROUNDING),
    Rule("the limit is the plan's", "limit_gap_s", high=0),
    Rule("a rollout ends by its limit", "overtime_s", high=0),
    Rule("times and values of events are finite", "n_bad_events", high=0),
    Rule("the stop reason is one of the closed set", "stop_reason", among=tuple(reason.value for reason in StopReason)),
)
RULES = {"turns": TURN_RULES, "rollouts": ROLLOUT_RULES}


class Validator:
    """One expectation per rule in an ephemeral context, made once and used in every iteration.

    An expectation costs 5 ms whatever the table's size, so an iteration first asks one alone: that no row breaks any
    rule. Only when that fails, the rules are asked one by one for the rows that break them.
    """

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its own dependencies, while it imports
            import great_expectations as gx
            import great_expectations.expectations as gxe
            from great_expectations.data_context.types.base import ProgressBarsConfig
        for name in ("great_expectations", "great_expectations.data_context.types.base"):
            logging.getLogger(name).setLevel(logging.ERROR)
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
        source = context.data_sources.add_pandas("trajectories")
        self._batches = {name: source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all") for name in RULES}
        self._whole = Rule("no rule is broken", BROKEN, high=0).expectation(gxe)
        self._expectations = {name: {rule.text: rule.expectation(gxe) for rule in rules} for name, rules in RULES.items()}

    def check(self, tables: Tables, version: int, limit_s: float) -> list[Finding]:
        """Every broken rule of these rollouts, by place. Raises DataError when an expectation itself cannot be computed."""
        frames = frames_of(tables, version, limit_s)
        findings = [
            _finding(table, rule, row, got, name == "turns")
            for name, frame, table in (("rollouts", frames.rollouts, tables.rollouts), ("turns", frames.turns, tables.turns))
            for rule, row, got in self._broken(name, frame)
        ]
        return sorted(findings, key=lambda f: (f.group, f.rollout, f.agent is not None, f.agent or 0, f.turn or 0, f.rule))

    def _broken(self, name: str, frame: pd.DataFrame) -> list[tuple[str, int, str]]:
        """Rule, row and value of every break."""
        if frame.empty:
            return []
        frame[BROKEN] = sum(rule.broken(frame).astype(int) for rule in RULES[name])
        batch = self._batches[name].get_batch({"dataframe": frame})
        if batch.validate(self._whole, result_format={"result_format": "BOOLEAN_ONLY"}).success:
            return []
        broken = []
        for text, expectation in self._expectations[name].items():
            result = batch.validate(expectation, result_format=DETAIL)
            if not result.success:
                rows = result.result.get("unexpected_index_list")
                if not rows:
                    raise DataError(f"The rule '{text}' on {name} could not be checked: {result.exception_info}; it is a defect.")
                broken += [(text, int(row["row"]), _shown(row)) for row in rows]
        return broken


def _finding(table: Any, rule: str, row: int, got: str, of_turn: bool) -> Finding:
    cell = {name: table[name][row].as_py() for name in ("group", "rollout", *(("agent", "index") if of_turn else ()))}
    return Finding(rule, cell["group"], cell["rollout"], cell.get("agent"), cell.get("index"), got)


def _shown(row: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in sorted(row.items()) if key != "row")


@cache
def validator() -> Validator:
    """The process's validator: importing the library takes seconds, making the suites milliseconds."""
    return Validator()
