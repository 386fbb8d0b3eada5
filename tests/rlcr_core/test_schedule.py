"""Expected limits are derived by hand beside each case."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.config import ScheduleConfig
from rlcr_core.errors import ConfigError, StoreError
from rlcr_core.schedule import limit_at, limits, write_schedule_csv


def config(kind, start_s=10.0, end_s=40.0, growth_iterations=2, points=()):
    return ScheduleConfig(kind=kind, start_s=start_s, end_s=end_s, growth_iterations=growth_iterations, points=points)


def test_constant_is_the_start_for_ever():
    assert limits(config("constant", 20.0, 20.0), 3).tolist() == [20.0, 20.0, 20.0]


@pytest.mark.parametrize(
    ("iteration", "limit_s"),
    # 16 + (84 - 16) * i / 60: a quarter of the way is 16 + 17, half is 16 + 34.
    [(0, 16.0), (15, 33.0), (30, 50.0), (60, 84.0), (61, 84.0), (1000, 84.0)],
)
def test_linear_grows_to_the_end_and_stays(iteration, limit_s):
    assert limit_at(config("linear", 16.0, 84.0, 60), iteration) == limit_s


def test_exponential_has_equal_ratios():
    # 10 * (40 / 10) ** (i / 2) = 10, 20, 40, then constant.
    assert limits(config("exponential"), 5).tolist() == pytest.approx([10.0, 20.0, 40.0, 40.0, 40.0], rel=1e-15)


def test_piecewise_joins_its_points_and_stays_at_the_last():
    points = ((0, 10.0), (10, 30.0), (20, 20.0))
    # 5 is half of 10 → 30, so 20; 15 is half of 30 → 20, so 25; after 20 the last point holds.
    values = [limit_at(config("piecewise", points=points), i) for i in (0, 5, 10, 15, 20, 25)]
    assert values == [10.0, 20.0, 30.0, 25.0, 20.0, 20.0]


@given(
    kind=st.sampled_from(["linear", "exponential"]),
    start_s=st.floats(1.0, 1e4),
    end_s=st.floats(1.0, 1e4),
    growth=st.integers(1, 50),
)
def test_growth_is_monotone_from_start_to_end(kind, start_s, end_s, growth):
    values = limits(config(kind, start_s, end_s, growth), growth + 2)
    assert values[0] == pytest.approx(start_s, rel=1e-12)
    assert values[-1] == values[-2] == end_s
    sign = 1.0 if end_s >= start_s else -1.0
    steps = sign * (values[1:] - values[:-1])
    assert (steps >= -1e-9 * max(start_s, end_s)).all()


def test_negative_iterations_are_refused():
    with pytest.raises(ConfigError, match="counted from 0, got -1"):
        limit_at(config("linear"), -1)


def test_the_csv_holds_the_exact_limits(tmp_path):
    schedule = config("exponential", 16.0, 84.0, 7)
    write_schedule_csv(schedule, 9, tmp_path / "schedule.csv")
    with (tmp_path / "schedule.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["iteration"]) for row in rows] == list(range(9))
    assert [float(row["limit_s"]) for row in rows] == limits(schedule, 9).tolist()


def test_a_csv_that_cannot_be_written_says_where(tmp_path):
    with pytest.raises(StoreError, match=r"schedule\.csv cannot be written"):
        write_schedule_csv(config("linear"), 3, tmp_path / "missing" / "schedule.csv")
