"""The probe compares token by token, and is hard to fool."""

from __future__ import annotations

import pytest

from rlcr_core.errors import WeightError
from tasks.probe import Probe, check_probe, probe_ids

PROBE = Probe([[2, 3, 4], [5, 6, 7]], [[-1.0, -2.0], [-3.0, -4.0]])


def test_equal_within_the_tolerance_passes() -> None:
    check_probe([[-1.00009, -2.0], [-3.0, -3.99991]], PROBE, "here")


@pytest.mark.parametrize(
    ("got", "message"),
    [
        ([[-1.0, -2.0], [-3.0, -4.0002]], r"token 1 of probe row 1 .* -4\.000200"),
        ([[float("nan"), -2.0], [-3.0, -4.0]], "token 0 of probe row 0"),
        ([[-1.0, -2.0], [-3.0]], r"rows of \[2, 1\] logprobs, expected \[2, 2\]"),
        ([[-1.0, -2.0]], r"expected \[2, 2\]"),
    ],
)
def test_anything_else_names_the_place(got: list[list[float]], message: str) -> None:
    with pytest.raises(WeightError, match=message):
        check_probe(got, PROBE, "version 3")


def test_probe_ids_are_fixed_and_leave_out_padding_and_unknown() -> None:
    assert probe_ids(244) == probe_ids(244)
    flat = [i for row in probe_ids(5) for i in row]
    assert min(flat) == 2 and max(flat) == 4
