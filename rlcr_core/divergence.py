"""How far one set of observations is from another: divergences of distributions over cells, in bits.

A cell is any hashable description of an observation: one feature, or several together. The Jensen-Shannon divergence
(Lin, Divergence measures based on the Shannon entropy, 1991) is 0 for equal distributions and 1 bit for disjoint ones,
finite also where one of them has empty cells. The estimate from counts is biased upwards, the more the fewer
observations there are; compare it with that of two halves of the reference, which is its floor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

import numpy as np

from rlcr_core.errors import DataError

Counts = Mapping[Hashable, int]


def jensen_shannon(a: Counts, b: Counts) -> float:
    """Divergence of the two distributions that the counts estimate, in bits, 0 to 1. Raises DataError for empty counts."""
    n_a, n_b = sum(a.values()), sum(b.values())
    if not n_a or not n_b:
        raise DataError(f"a divergence needs observations on both sides, got {n_a} and {n_b}.")
    cells = sorted({*a, *b}, key=repr)
    p = np.array([a.get(cell, 0) / n_a for cell in cells])
    q = np.array([b.get(cell, 0) / n_b for cell in cells])
    middle = (p + q) / 2
    return float(max(0.0, _entropy(middle) - (_entropy(p) + _entropy(q)) / 2))


def _entropy(p: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    positive = p[p > 0]
    return float(-(positive * np.log2(positive)).sum())


def novel_share(reference: Counts, seen: Counts) -> float:
    """Share of the observations in cells that the reference never showed. Raises DataError when nothing was seen."""
    total = sum(seen.values())
    if not total:
        raise DataError("a share of observations needs at least one observation, got none.")
    return sum(n for cell, n in seen.items() if cell not in reference) / total


def merged(parts: list[Counter[Hashable]]) -> Counter[Hashable]:
    """All counts together."""
    total: Counter[Hashable] = Counter()
    for part in parts:
        total.update(part)
    return total
