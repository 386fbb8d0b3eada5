"""The report's sentences, made from the evaluation's figures: a claim only where its interval carries it.

A difference whose interval lies above zero is `shown`, below zero `against`, across zero `open`; what the training
curves show without an interval is `seen` and says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rlcr_core.errors import DataError
from rlcr_core.statistics import Interval
from tasks.figure_style import series
from tasks.figures import Curve, Run

Verdict = Literal["shown", "against", "open", "seen"]


@dataclass(frozen=True)
class Finding:
    """One sentence and how far the data carry it."""

    verdict: Verdict
    text: str


def interval_of(entry: Mapping[str, Any]) -> Interval:
    """The mean and interval of a summary's entry. Raises DataError when one of them is missing."""
    try:
        return Interval(float(entry["mean"]), float(entry["low"]), float(entry["high"]))
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"An entry of the evaluation's summary lacks a numeric mean, low or high: {dict(entry)}; run "
            "`dvc repro -f evaluate`."
        ) from None


def verdict_of(interval: Interval) -> Verdict:
    """Which side of zero the whole interval lies on; touching zero is open."""
    if interval.low > 0:
        return "shown"
    return "against" if interval.high < 0 else "open"


def joint_verdict(intervals: Sequence[Interval]) -> Verdict:
    """The verdict that every seed shares, otherwise open."""
    verdicts = {verdict_of(interval) for interval in intervals}
    return verdicts.pop() if len(verdicts) == 1 else "open"


def _range(interval: Interval, sign: float = 1.0) -> str:
    low, high = sorted((sign * interval.low, sign * interval.high))
    return f"{sign * interval.mean:.3f} ({low:.3f} to {high:.3f})".replace("-", "−")


def difference_finding(a: str, b: str, by_seed: Mapping[int, Interval], confidence: float) -> Finding:
    """What the paired difference a − b says, over all seeds of it."""
    intervals = list(by_seed.values())
    several = len(intervals) > 1
    verdict = joint_verdict(intervals)
    name_a, name_b = f"the {series(a)[0]}", f"the {series(b)[0]}"
    sign = -1.0 if verdict == "against" else 1.0
    by = "; ".join(_range(i, sign) + (f" with seed {seed}" if several else "") for seed, i in by_seed.items())
    level = f"{100 * confidence:g}% interval"
    if verdict == "open":
        why = f"the {level}s do not all lie on the same side of zero" if several else f"the {level} includes zero"
        return Finding(verdict, f"No difference between {name_a} and {name_b} is shown: {by}; {why}.")
    word = "more" if verdict == "shown" else "less"
    claim = f"{name_a.capitalize()} earns {word} than {name_b} on the same tasks, by {by}"
    return Finding(
        verdict, f"{claim}; " + (f"each {level} excludes zero." if several else f"the {level} excludes zero.")
    )


def difference_findings(summary: Mapping[str, Any]) -> list[Finding]:
    """One finding for each pair of organisations, in the summary's order."""
    pairs: dict[tuple[str, str], dict[int, Interval]] = {}
    for entry in summary["differences"]:
        pairs.setdefault((entry["a"], entry["b"]), {})[int(entry.get("seed") or 0)] = interval_of(entry)
    return [difference_finding(a, b, by_seed, float(summary["confidence"])) for (a, b), by_seed in pairs.items()]


def crossing_of(summary: Mapping[str, Any]) -> Interval | None:
    """From when on the collective is ahead of solo; None when it never is, or too many resamples never cross."""
    crossing = summary["crossing"] or {}
    values = [crossing.get(key) for key in ("mean", "low", "high")]
    if any(value is None or not np.isfinite(value) for value in values):
        return None
    return None if _never(summary) > (1 - float(summary["confidence"])) / 2 else interval_of(crossing)


def _never(summary: Mapping[str, Any]) -> float:
    return float((summary["crossing"] or {}).get("never_share") or 0.0)


def _lead(curves: Sequence[Curve], until_s: float) -> float:
    """The most by which solo's mean return is ahead before `until_s`; 0 when it never is or is not there."""
    first = {name: next((c for c in curves if c.organisation == name), None) for name in ("collective", "solo")}
    ours, theirs = first["collective"], first["solo"]
    if ours is None or theirs is None:
        return 0.0
    times = ours.time_s[ours.time_s < until_s]
    ahead = np.interp(times, theirs.time_s, theirs.mean) - np.interp(times, ours.time_s, ours.mean)
    return max(0.0, float(ahead.max(initial=0.0)))


def crossing_finding(summary: Mapping[str, Any], curves: Sequence[Curve]) -> Finding:
    """From when on the collective leads, how often the resampled curves never cross, and what was before."""
    crossing, percent = crossing_of(summary), 100 * float(summary["confidence"])
    share = f" In {100 * _never(summary):.1f}% of the resamples it never is." if _never(summary) > 0 else ""
    if crossing is None:
        return Finding("open", f"No moment is shown from which on the collective is ahead of the single agent.{share}")
    lead = _lead(curves, crossing.mean)
    before = f" Until then the single agent leads by up to {lead:.3f} (means, no interval)." if lead >= 0.0005 else ""
    span = f"{percent:g}% interval {crossing.low:.1f} to {crossing.high:.1f} s"
    text = f"From {crossing.mean:.1f} s on ({span}) the collective is ahead of the single agent and stays so"
    return Finding("shown", f"{text}.{before}{share}")


def _ends(values: np.ndarray[Any, Any]) -> tuple[float, float] | None:
    """Means of the first and last tenth of a curve's finite values."""
    finite = values[np.isfinite(values)]
    tenth = max(1, len(finite) // 10)
    return (float(finite[:tenth].mean()), float(finite[-tenth:].mean())) if len(finite) >= 2 else None


def training_findings(runs: Sequence[Run]) -> list[Finding]:
    """Hires, truth and talk of each collective run, first against last tenth of training: described, not tested."""
    found = []
    phrases = (
        ("roster/hires", "hires per rollout went from {:.1f} to {:.1f}"),
        ("talk/true_share", "the share of true messages from {:.2f} to {:.2f}"),
        ("work/received_key_mean", "modules built with a key learnt from a message from {:.1f} to {:.1f}"),
    )
    for run in runs:
        if run.mode != "collective":
            continue
        parts = []
        for key, phrase in phrases:
            values = run.column(key)
            ends = None if values is None else _ends(values)
            if ends is not None:
                parts.append(phrase.format(*ends))
        if parts:
            how = "first against last tenth of the iterations; no interval"
            found.append(Finding("seen", f"In training with seed {run.seed}, {'; '.join(parts)} ({how})."))
    return found


def findings(summary: Mapping[str, Any], curves: Sequence[Curve], runs: Sequence[Run]) -> list[Finding]:
    """Everything that was learnt: differences, the crossing, then what the training curves show."""
    crossing = [] if _is_unasked(summary) else [crossing_finding(summary, curves)]
    return [*difference_findings(summary), *crossing, *training_findings(runs)]


def _is_unasked(summary: Mapping[str, Any]) -> bool:
    """Whether no solo policy was evaluated beside the collective, so that there is nobody to overtake."""
    crossing = summary["crossing"]
    return bool(crossing) and "never_share" in crossing and crossing["never_share"] is None
