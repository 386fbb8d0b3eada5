"""The performance-latency frontier: the points that no other point beats in both latency and return."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from rlcr_core.errors import DataError


class Point(NamedTuple):
    """What one way of working (an organisation, a limit, a team size) earns by when."""

    latency_s: float
    return_: float
    name: str


def frontier(points: Iterable[Point]) -> tuple[Point, ...]:
    """The points that are not dominated, by rising latency; equal points stay together.

    A point is dominated by one that is at least as early and earns at least as much, and is better in one of them.
    Points are taken as exact: two whose intervals overlap may swap places in another sample of tasks. Raises DataError
    for a latency or return that is not finite.
    """
    ordered = sorted(points, key=lambda point: (point.latency_s, -point.return_, point.name))
    kept: list[Point] = []
    for point in ordered:
        if not (math.isfinite(point.latency_s) and math.isfinite(point.return_)):
            raise DataError(f"The point {point.name!r} has latency {point.latency_s} s and return {point.return_}, not finite.")
        if not kept or point.return_ > kept[-1].return_ or point[:2] == kept[-1][:2]:
            kept.append(point)
    return tuple(kept)
