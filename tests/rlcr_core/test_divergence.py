"""Divergences in bits, worked out by hand."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.divergence import jensen_shannon, merged, novel_share
from rlcr_core.errors import DataError


def test_equal_disjoint_and_half_overlapping_distributions() -> None:
    assert jensen_shannon({"a": 3, "b": 1}, {"a": 6, "b": 2}) == 0.0
    assert jensen_shannon({"a": 5}, {"b": 1}) == 1.0
    # P = (1, 0), Q = (1/2, 1/2), M = (3/4, 1/4): H(M) = 0.8113, H(P) = 0, H(Q) = 1, so 0.8113 - 0.5.
    assert jensen_shannon({"a": 1}, {"a": 1, "b": 1}) == pytest.approx(0.811278 - 0.5, abs=1e-6)


counts = st.dictionaries(st.integers(0, 5), st.integers(1, 50), min_size=1)


@given(counts, counts)
def test_a_divergence_is_symmetric_and_between_0_and_1(a: dict[int, int], b: dict[int, int]) -> None:
    assert 0.0 <= jensen_shannon(a, b) <= 1.0 + 1e-12
    assert jensen_shannon(a, b) == pytest.approx(jensen_shannon(b, a), abs=1e-12)


def test_the_share_of_what_was_never_seen() -> None:
    assert novel_share({"a": 1}, {"a": 3, "b": 1}) == 0.25
    assert merged([Counter("ab"), Counter("b")]) == {"a": 1, "b": 2}


def test_nothing_seen_is_refused() -> None:
    with pytest.raises(DataError, match="got 0 and 1"):
        jensen_shannon({}, {"a": 1})
    with pytest.raises(DataError, match="at least one observation"):
        novel_share({"a": 1}, {})
