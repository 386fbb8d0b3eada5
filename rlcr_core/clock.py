"""The derived clock: virtual seconds of a turn from its tokens and its tool time, the same on any machine.

A turn that starts at t0 with p new prompt tokens, n sampled tokens and a tool call of d seconds ends at
t0 + turn_overhead_s + p / prefill_tps + n / decode_tps + d. Times are rounded to nanoseconds, so that sums of decimal
constants compare as written (0.1 + 0.2 equals 0.3).

The constants are those of `latency`, or of the file that `latency.calibration` names: measured on a machine by
`python -m flows.calibrate`, they make the derived clock that machine's own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import yaml
from pydantic import ValidationError

from rlcr_core.config import CollectiveConfig, LatencyConfig
from rlcr_core.errors import ConfigError
from rlcr_core.types import ToolSpec

CONSTANTS = ("turn_overhead_s", "prefill_tps", "decode_tps", "shared_capacity")


def tick(time_s: float) -> float:
    """The same time in whole nanoseconds."""
    return round(time_s, 9)


class LatencyModel:
    """Times of turns. With `shared_capacity` C > 0, `busy` agents above C share it: decode_tps falls by C / busy."""

    def __init__(self, config: LatencyConfig) -> None:
        """Raises ConfigError when `calibration` names a file that cannot be used."""
        self.config = calibrated(config)

    def decode_tps(self, busy: int = 1) -> float:
        """Tokens per second of one agent while `busy` agents of its rollout are sampling."""
        capacity = self.config.shared_capacity
        return self.config.decode_tps * min(1.0, capacity / busy) if capacity and busy else self.config.decode_tps

    def first_token_s(self, start_s: float, prompt_tokens: int) -> float:
        """When sampling begins, in seconds of the rollout."""
        return start_s + self.config.turn_overhead_s + prompt_tokens / self.config.prefill_tps

    def spoken_s(self, start_s: float, prompt_tokens: int, sampled_tokens: int, busy: int = 1) -> float:
        """When the last token is sampled and the tool call begins."""
        return tick(self.first_token_s(start_s, prompt_tokens) + sampled_tokens / self.decode_tps(busy))

    def tokens_by(self, limit_s: float, start_s: float, prompt_tokens: int, busy: int = 1) -> int:
        """How many tokens are sampled at or before `limit_s`; 0 when the prompt is not read by then."""
        room = (limit_s - self.first_token_s(start_s, prompt_tokens)) * self.decode_tps(busy)
        return max(0, math.floor(room + 1e-6))

    def shortest_turn_s(self, tools: Iterable[ToolSpec], collective: CollectiveConfig) -> float:
        """The lookahead: no turn that starts at t0 has an effect before t0 plus this. Infinite waits do not count."""
        durations = [tool_seconds(collective)[t.name] if t.name in COLLECTIVE_TOOLS else t.min_tool_s for t in tools]
        tokens = [t.min_tokens for t in tools]
        invalid = (1, collective.error_s)
        calls = [(n, min(d, collective.error_s)) for n, d in zip(tokens, durations, strict=True)] + [invalid]
        return tick(self.config.turn_overhead_s + min(n / self.config.decode_tps + d for n, d in calls))


def calibrated(config: LatencyConfig) -> LatencyConfig:
    """The same section with the constants of its calibration file, if it names one. Raises ConfigError."""
    if not config.calibration:
        return config
    try:
        changed_ns = os.stat(config.calibration).st_mtime_ns
    except OSError as error:
        raise ConfigError(
            f"latency.calibration names {config.calibration!r}, which cannot be read ({error.strerror}); make it with "
            "`python -m flows.calibrate`, or empty latency.calibration to take the constants of params.yaml."
        ) from None
    return _read_calibration(config.calibration, changed_ns)


@lru_cache(maxsize=8)
def _read_calibration(path: str, changed_ns: int) -> LatencyConfig:
    try:
        constants = yaml.safe_load(Path(path).read_text(encoding="utf-8"))["constants"]
        return LatencyConfig(**{name: constants[name] for name in CONSTANTS}, calibration=path)
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValidationError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{path} is no calibration: expected `constants` with {', '.join(CONSTANTS)} ({reason}); make it again with "
            "`python -m flows.calibrate`, or change latency.calibration."
        ) from None


COLLECTIVE_TOOLS = ("dm", "post", "read", "search", "wait", "hire", "fire")


def tool_seconds(config: CollectiveConfig) -> dict[str, float]:
    """Tool time of each of the collective's tools, in seconds; waiting for a message (`wait_s: null`) is endless."""
    return {
        "dm": config.message_s, "post": config.message_s, "read": config.read_s, "search": config.search_s,
        "wait": math.inf if config.wait_s is None else config.wait_s, "hire": config.hire_s, "fire": config.hire_s,
    }  # fmt: skip
