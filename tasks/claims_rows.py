"""What every row of the table of claims is made of: the studies, intervals over their seeds, and words for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlcr_core.across_seeds import mean_interval
from rlcr_core.statistics import Interval
from rlcr_core.types import Float64Array
from tasks.claims_data import StudyResults
from tasks.verdicts import Verdict, span

Studies = Mapping[str, StudyResults]


@dataclass(frozen=True)
class Claim:
    """One row: the claim, what was measured (a figure a base or study), the verdict, what the task's design has to do with it."""

    id: str
    claim: str
    measured: tuple[str, ...]
    verdict: Verdict
    design: str = ""


def main_studies(studies: Studies) -> list[StudyResults]:
    return [study for name, study in sorted(studies.items()) if name.startswith("base-")]


def of_each(studies: Sequence[StudyResults], value: Callable[[StudyResults], Interval | None]) -> dict[str, Interval]:
    """The interval of each study that has one."""
    found = {study.name: value(study) for study in studies}
    return {name: interval for name, interval in found.items() if interval is not None}


def over_seeds(values_S: Float64Array) -> Interval | None:
    """Student's interval over seeds; None where a seed has no value or there is one seed alone."""
    return mean_interval(values_S) if len(values_S) > 1 and np.isfinite(values_S).all() else None


def words(found: Mapping[str, Interval], what: str, form: str = ".2f") -> tuple[str, ...]:
    return tuple(f"{name}: {what.format(span(interval, form))}" for name, interval in found.items())
