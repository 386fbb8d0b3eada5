"""Verdicts on a claim from intervals: a side is taken only where the whole interval lies on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from rlcr_core.statistics import Interval

Verdict = Literal["holds", "does not hold", "cannot tell"]
Test = Callable[[Interval], bool]
Tests = tuple[Test, Test]  # (the claim holds, it does not)


def span(interval: Interval, form: str = ".2f") -> str:
    return f"{interval.mean:{form}} [{interval.low:{form}}, {interval.high:{form}}]"


def judge(intervals: Sequence[Interval], holds: Test, fails: Test) -> Verdict:
    """The verdict on which all intervals agree."""
    if intervals and all(holds(i) for i in intervals):
        return "holds"
    if intervals and all(fails(i) for i in intervals):
        return "does not hold"
    return "cannot tell"


def above(threshold: float) -> Tests:
    return (lambda i: i.low > threshold), (lambda i: i.high < threshold)


def below(threshold: float) -> Tests:
    return (lambda i: i.high < threshold), (lambda i: i.low > threshold)


def around(value: float, share: float = 0.25) -> Tests:
    """Holds where the interval contains the value and reaches no further from its mean than `share` of the value."""
    return (lambda i: i.low <= value <= i.high and i.high - i.low <= 2 * share * value), (lambda i: not i.low <= value <= i.high)


def no_gain(margin: float) -> Tests:
    """Holds where the interval ends below a margin that nobody would care for, fails where it lies above zero."""
    return (lambda i: i.high < margin), (lambda i: i.low > 0)


def no_loss(margin: float) -> Tests:
    """Holds where the interval begins above minus a margin that nobody would care for, fails where it lies below zero."""
    return (lambda i: i.low > -margin), (lambda i: i.high < 0)


def indifferent(margin: float) -> Tests:
    """Holds where the interval lies within ± margin, fails where it lies outside: only a narrow interval shows no effect."""
    return (lambda i: -margin < i.low and i.high < margin), (lambda i: i.low > margin or i.high < -margin)
