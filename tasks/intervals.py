"""Intervals as params.yaml wants them, and as the fields of a row."""

from __future__ import annotations

from typing import Any

from rlcr_core.config import EvaluationConfig
from rlcr_core.statistics import Interval


def options(config: EvaluationConfig) -> dict[str, Any]:
    """Resamples and confidence, the keywords of every bootstrap in rlcr_core."""
    return {"resamples": config.bootstrap_resamples, "confidence": config.confidence}


def entry(interval: Interval, prefix: str = "") -> dict[str, float]:
    """An interval's fields, such as `mean` or `ratio_mean`."""
    return {f"{prefix}mean": interval.mean, f"{prefix}low": interval.low, f"{prefix}high": interval.high}
