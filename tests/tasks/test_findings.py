"""What the report claims, and what it does not: sentences from intervals given by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.statistics import Interval
from tasks.figures import Curve, Run
from tasks.findings import (
    crossing_finding,
    crossing_of,
    difference_finding,
    findings,
    joint_verdict,
    training_findings,
    verdict_of,
)


def test_a_difference_above_zero_is_claimed():
    found = difference_finding("collective", "solo", {0: Interval(0.34, 0.32, 0.36)}, 0.95)
    assert found.verdict == "shown"
    assert found.text == (
        "The trained collective earns more than the trained solo agent on the same tasks, by 0.340 (0.320 to 0.360); "
        "the 95% interval excludes zero."
    )


def test_a_difference_below_zero_is_said_as_a_loss_with_positive_size():
    # a − b = −0.2 (−0.3 to −0.1): a earns less, by 0.2 (0.1 to 0.3).
    found = difference_finding("collective", "solo", {0: Interval(-0.2, -0.3, -0.1)}, 0.9)
    assert found.verdict == "against"
    assert "earns less than the trained solo agent on the same tasks, by 0.200 (0.100 to 0.300)" in found.text
    assert "90% interval" in found.text


def test_a_difference_across_zero_is_not_claimed():
    found = difference_finding("solo", "base", {0: Interval(0.01, -0.02, 0.04)}, 0.95)
    assert found.verdict == "open"
    assert found.text == (
        "No difference between the trained solo agent and the base collective is shown: 0.010 (−0.020 to 0.040); "
        "the 95% interval includes zero."
    )


def test_one_doubtful_seed_of_three_makes_no_claim():
    sure, doubtful = Interval(0.3, 0.2, 0.4), Interval(0.1, -0.1, 0.3)
    found = difference_finding("collective", "solo", {0: sure, 1: sure, 2: doubtful}, 0.95)
    assert found.verdict == "open"
    assert "0.100 (−0.100 to 0.300) with seed 2" in found.text
    assert difference_finding("collective", "solo", {0: sure, 1: sure}, 0.95).verdict == "shown"


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), min_size=1, max_size=4))
def test_a_claim_is_made_only_when_every_interval_excludes_zero_on_one_side(pairs):
    intervals = [Interval(low + width / 2, low, low + width) for low, width in pairs]
    claimed = joint_verdict(intervals) != "open"
    assert claimed == (all(i.low > 0 for i in intervals) or all(i.high < 0 for i in intervals))


def test_touching_zero_is_open():
    assert verdict_of(Interval(0.1, 0.0, 0.2)) == "open"
    assert verdict_of(Interval(-0.1, -0.2, 0.0)) == "open"


def curve(name, values):
    array = np.array(values)
    return Curve(name, 0, np.array([0.0, 10.0, 20.0, 30.0]), array, array, array)


def test_crossing_says_how_far_the_single_agent_led_before():
    # Before 20 s solo leads by 0 at 0 s and by 0.05 − 0.01 = 0.04 at 10 s.
    curves = [curve("collective", [0.0, 0.01, 0.1, 0.3]), curve("solo", [0.0, 0.05, 0.1, 0.15])]
    summary = {"confidence": 0.95, "crossing": {"mean": 20.0, "low": 18.0, "high": 22.5, "never_share": 0.01}}
    found = crossing_finding(summary, curves)
    assert found.verdict == "shown"
    assert found.text == (
        "From 20.0 s on (95% interval 18.0 to 22.5 s) the collective is ahead of the single agent and stays so. "
        "Until then the single agent leads by up to 0.040 (means, no interval). In 1.0% of the resamples it never is."
    )


def test_a_lead_from_the_start_claims_no_lead_of_solo():
    curves = [curve("collective", [0.0, 0.1, 0.2, 0.3]), curve("solo", [0.0, 0.05, 0.1, 0.15])]
    summary = {"confidence": 0.95, "crossing": {"mean": 10.0, "low": 10.0, "high": 10.0, "never_share": 0.0}}
    assert "single agent leads" not in crossing_finding(summary, curves).text


@pytest.mark.parametrize(
    "crossing",
    [
        None,
        {"mean": None, "low": None, "high": None, "never_share": 1.0},
        {"mean": 30.0, "low": 20.0, "high": None, "never_share": 0.2},
        {"mean": 30.0, "low": 20.0, "high": 40.0, "never_share": 0.03},  # the bound leaves out 2.5%
    ],
)
def test_a_crossing_that_is_not_settled_is_not_claimed(crossing):
    summary = {"confidence": 0.95, "crossing": crossing}
    assert crossing_of(summary) is None
    assert crossing_finding(summary, []).verdict == "open"


def test_training_is_described_from_its_first_and_last_tenth():
    # 20 iterations: tenths of 2. Hires 0..19: (0 + 1) / 2 = 0.5 and (18 + 19) / 2 = 18.5; one truth: left out.
    columns = {"iteration": np.arange(20.0), "roster/hires": np.arange(20.0), "talk/true_share": np.full(20, np.nan)}
    columns["talk/true_share"][3] = 0.5
    found = training_findings([Run("collective", 4, columns), Run("solo", 4, columns)])
    assert [finding.verdict for finding in found] == ["seen"]
    assert "with seed 4, hires per rollout went from 0.5 to 18.5 (first" in found[0].text


def test_nothing_is_found_about_overtaking_a_solo_policy_that_was_not_evaluated():
    unasked = {"crossing": {"mean": None, "low": None, "high": None, "never_share": None}, "differences": [], "confidence": 0.95}
    assert findings(unasked, [], []) == []
    never = unasked | {"crossing": {"mean": None, "low": None, "high": None, "never_share": 1.0}}
    assert [finding.verdict for finding in findings(never, [], [])] == ["open"]
