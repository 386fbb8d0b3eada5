"""Great Expectations holds the contract of the trajectory tables: every rule that is broken names its turn or rollout.

Rules are expectations on the derived scalars of tasks/trajectory_frames.py. A pass without details answers quickly; only
when it fails are the broken rules asked for their rows. To add a rule: a column there, an expectation here.
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


def _turn_rules(gxe: Any) -> dict[str, Any]:
    """Rule in words -> expectation, on one row per turn."""
    between = gxe.ExpectColumnValuesToBeBetween
    return {
        "a turn has at least one sampled token": between(column="n_tokens", min_value=1),
        "every sampled token has one logprob": gxe.ExpectColumnPairValuesToBeEqual(
            column_A="n_tokens", column_B="n_logprobs"
        ),
        "logprobs are finite and at most 0": between(column="n_bad_logprobs", max_value=0),
        "a turn ends at or after its start": between(column="duration_s", min_value=0),
        "a turn starts before the limit": between(column="left_at_start_s", min_value=0, strict_min=True),
        "a turn ends by the limit or is cut": between(column="overtime_s", max_value=0),
        "the turn's kind is one of the closed set": gxe.ExpectColumnValuesToBeInSet(
            column="kind", value_set=[kind.value for kind in TurnKind]
        ),
        "tokens come from the synced weights": between(column="version_gap", min_value=0, max_value=0),
        "turn numbers of an agent rise": between(column="index_step", min_value=1),
        "context numbers of an agent never fall": between(column="context_step", min_value=0),
        "an agent's turns do not overlap": between(column="idle_s", min_value=0),
        "the turn's agent is on record": gxe.ExpectColumnValuesToBeInSet(column="is_employed", value_set=[True]),
    }


def _rollout_rules(gxe: Any) -> dict[str, Any]:
    """Rule in words -> expectation, on one row per rollout."""
    between = gxe.ExpectColumnValuesToBeBetween
    low, high = RETURN_BOUNDS
    return {
        "a rollout occurs once": gxe.ExpectCompoundColumnsToBeUnique(column_list=["group", "rollout"]),
        "the return is within its bounds": between(
            column="return", min_value=low - ROUNDING, max_value=high + ROUNDING
        ),
        "the return is the sum of the rewards by the limit": between(column="return_gap", max_value=ROUNDING),
        "the limit is the plan's": between(column="limit_gap_s", max_value=0),
        "a rollout ends by its limit": between(column="overtime_s", max_value=0),
        "times and values of events are finite": between(column="n_bad_events", max_value=0),
        "the stop reason is one of the closed set": gxe.ExpectColumnValuesToBeInSet(
            column="stop_reason", value_set=[reason.value for reason in StopReason]
        ),
    }


class Validator:
    """The two suites in one ephemeral context; made once, used in every iteration."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its own dependencies, while it imports
            import great_expectations as gx
            import great_expectations.expectations as gxe
        for name in ("great_expectations", "great_expectations.data_context.types.base"):
            logging.getLogger(name).setLevel(logging.ERROR)
        self._suite = gx.ExpectationSuite
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False, "metric_calculations": False}
        source = context.data_sources.add_pandas("trajectories")
        self._batches = {
            name: source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all")
            for name in ("turns", "rollouts")
        }
        self._rules = {"turns": _turn_rules(gxe), "rollouts": _rollout_rules(gxe)}
        self._suites = {name: self._make_suite(context, name, rules) for name, rules in self._rules.items()}

    def _make_suite(self, context: Any, name: str, rules: dict[str, Any]) -> Any:
        return context.suites.add(self._suite(name=name, expectations=list(rules.values())))

    def check(self, tables: Tables, version: int, limit_s: float) -> list[Finding]:
        """Every broken rule of these rollouts, by place. Raises DataError when an expectation itself cannot be computed."""
        frames = frames_of(tables, version, limit_s)
        findings = [
            self._finding(tables.rollouts, rule, row, got, None)
            for rule, row, got in self._broken("rollouts", frames.rollouts)
        ]
        findings += [
            self._finding(tables.turns, rule, row, got, "agent")
            for rule, row, got in self._broken("turns", frames.turns)
        ]
        return sorted(
            findings, key=lambda f: (f.group, f.rollout, f.agent is not None, f.agent or 0, f.turn or 0, f.rule)
        )

    def _broken(self, name: str, frame: pd.DataFrame) -> list[tuple[str, int, str]]:
        if frame.empty:
            return []
        batch = self._batches[name].get_batch({"dataframe": frame})
        quick = batch.validate(self._suites[name], result_format={"result_format": "BOOLEAN_ONLY"})
        if quick.success:
            return []
        detail = {"result_format": "COMPLETE", "unexpected_index_column_names": ["row"]}
        broken = []
        for rule, expectation in self._rules[name].items():
            result = batch.validate(expectation, result_format=detail)
            if result.success:
                continue
            rows = result.result.get("unexpected_index_list")
            if not rows:
                raise DataError(
                    f"The rule '{rule}' could not be checked on the {name}: {result.exception_info}; this is a defect."
                )
            broken += [(rule, int(row["row"]), _shown(row)) for row in rows]
        return broken

    @staticmethod
    def _finding(table: Any, rule: str, row: int, got: str, agent: str | None) -> Finding:
        cell = {name: table[name][row].as_py() for name in ("group", "rollout", *(("agent", "index") if agent else ()))}
        return Finding(rule, cell["group"], cell["rollout"], cell.get("agent"), cell.get("index"), got)


def _shown(row: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in sorted(row.items()) if key != "row")


@cache
def validator() -> Validator:
    """The process's validator: importing the library takes seconds, making the suites milliseconds."""
    return Validator()
