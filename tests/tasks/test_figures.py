"""Smoothing, label placement, relative work, and what the figures draw, against values derived by hand."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.statistics import Interval
from tasks.figure_style import PALETTE, series, smooth, smoothing_width, spread, to_png, to_svg
from tasks.figures import (
    PANELS,
    RETURN_RATE,
    Curve,
    Panel,
    Run,
    learning_curves,
    learning_panel,
    panels_with_data,
    relative_work,
    return_against_time,
    signs_of_life,
)

NAN = float("nan")


def run(mode="collective", seed=0, **columns):
    named = {key.replace("__", "/"): np.array(values, dtype=np.float64) for key, values in columns.items()}
    return Run(mode, seed, {"iteration": np.arange(3.0), **named})


def curve(organisation, mean, seed=0, width=0.05):
    values = np.array(mean, dtype=np.float64)
    return Curve(organisation, seed, np.array([0.0, 42.0, 84.0]), values, values - width, values + width)


FULL = run(reward__return_mean=[0.1, 0.2, 0.3], time__limit_s=[16.0, 40.0, 60.0], roster__hires=[NAN, 2.0, 8.0])


def test_smooth_averages_over_the_neighbours_there_are():
    # Width 3. At 0: (1 + 2) / 2; at 1: (1 + 2 + 6) / 3; at 3: NaN stays; its neighbour 2: (2 + 6) / 2; at 4: 4 alone.
    values = np.array([1.0, 2.0, 6.0, NAN, 4.0])
    np.testing.assert_allclose(smooth(values, 3), [1.5, 3.0, 4.0, NAN, 4.0])


def test_smooth_with_a_window_longer_than_the_curve_is_the_mean():
    # Width 5 reaches both values from either place: (2 + 4) / 2.
    np.testing.assert_allclose(smooth(np.array([2.0, 4.0]), 5), [3.0, 3.0])


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), st.integers(0, 5))
def test_smoothing_stays_within_the_values(values, half):
    smoothed = smooth(np.array(values), 2 * half + 1)
    assert len(smoothed) == len(values)
    assert smoothed.min() >= min(values) - 1e-9
    assert smoothed.max() <= max(values) + 1e-9


@pytest.mark.parametrize(("n", "width"), [(3, 1), (39, 1), (40, 3), (100, 5), (150, 7)])
def test_smoothing_width_is_an_odd_twentieth(n, width):
    # 39 // 20 = 1; 40 // 20 = 2 -> 3; 100 // 20 = 5; 150 // 20 = 7.
    assert smoothing_width(n) == width


def test_spread_moves_two_labels_apart_about_their_middle():
    # 0.50 and 0.52 lack 0.08 of the gap 0.1: each moves by 0.04. The third is far enough.
    assert spread([0.52, 0.50, 0.9], 0.1) == pytest.approx([0.56, 0.46, 0.9])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_spread_keeps_order_and_mean_and_leaves_the_gap(positions):
    placed = spread(positions, 0.06)
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    gaps = [placed[b] - placed[a] for a, b in pairwise(order)]
    assert all(gap > 0.06 - 1e-3 for gap in gaps)
    assert sum(placed) == pytest.approx(sum(positions))


def test_return_rate_is_the_return_per_ten_seconds_of_limit():
    # 10 * 0.1 / 16 = 0.0625; 10 * 0.2 / 40 = 0.05; 10 * 0.3 / 60 = 0.05.
    np.testing.assert_allclose(FULL.column(RETURN_RATE), [0.0625, 0.05, 0.05])
    assert run(reward__return_mean=[0.1, 0.2, 0.3]).column(RETURN_RATE) is None


def test_relative_work_is_divided_by_the_runs_average():
    # The run's average useful work is (1 + 2 + 3) / 3 = 2 tokens/s; NaN: no rollout of that size.
    found = relative_work(
        run(
            work__useful_tokens_per_s=[1.0, 2.0, 3.0],
            work__useful_tps_hires_0=[1.0, 1.0, NAN],
            work__useful_tps_hires_5_8=[NAN, 3.0, 4.0],
        )
    )
    assert list(found) == ["0", "5_8"]
    np.testing.assert_allclose(found["0"], [0.5, 0.5, NAN])
    np.testing.assert_allclose(found["5_8"], [NAN, 1.5, 2.0])


def test_relative_work_of_a_run_without_work_is_empty():
    assert relative_work(run(work__useful_tokens_per_s=[0.0, 0.0, 0.0], work__useful_tps_hires_0=[0.0] * 3)) == {}
    assert relative_work(run(work__useful_tps_hires_0=[1.0, 1.0, 1.0])) == {}


def test_panels_without_a_finite_value_are_left_out():
    runs = [run(talk__true_share=[NAN, NAN, NAN], roster__hires=[1.0, NAN, 2.0])]
    assert [panel.name for panel in panels_with_data(runs)] == ["hires"]


def lines(axes):
    return [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()]


def test_return_panel_draws_the_base_at_each_iterations_limit():
    # Base: 0 at 0 s, 0.21 at 42 s, 0.42 at 84 s: 0.005 a second, so 0.08, 0.2 and 0.3 at 16, 40 and 60 s.
    axes = learning_panel(PANELS[0], [FULL], curve("base", [0.0, 0.21, 0.42])).axes[0]
    (_, drawn), (_, reference) = lines(axes)
    assert drawn == [0.1, 0.2, 0.3]
    assert reference == pytest.approx([0.08, 0.2, 0.3])


def test_rate_panel_divides_the_reference_by_the_limit_too():
    # The base earns 0.005 a second at any limit: 0.05 per ten seconds.
    axes = learning_panel(PANELS[1], [FULL], curve("base", [0.0, 0.21, 0.42])).axes[0]
    assert lines(axes)[1][1] == pytest.approx([0.05, 0.05, 0.05])


def test_learning_curves_have_a_panel_for_each_metric_and_name_the_modes():
    solo = Run("solo", 0, dict(FULL.columns))
    figure = learning_curves([FULL, solo], curve("base", [0.0, 0.2, 0.4]))
    titles = [axes.get_title(loc="left") for axes in figure.axes if axes.axison]
    assert titles == [panel.title for panel in PANELS if panel.name in ("return", "rate", "hires", "limit")]
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    assert named == ["trained collective", "trained solo agent", "base at the same limit"]


def test_one_iteration_is_enough_to_draw():
    one = Run("collective", 0, {"iteration": np.array([0.0]), "roster/hires": np.array([1.0])})
    axes = learning_panel(Panel("hires", "roster/hires", "Hires"), [one], None).axes[0]
    assert axes.get_xlim() == (0.0, 1.0)
    assert to_png(axes.figure).startswith(b"\x89PNG")


def test_return_against_time_names_each_line_and_marks_crossing_and_limit():
    curves = [curve("collective", [0.0, 0.2, 0.5]), curve("solo", [0.0, 0.1, 0.16]), curve("solo", [0.0, 0.1, 0.2], 1)]
    axes = return_against_time(curves, 84.0, Interval(20.0, 18.5, 22.0)).axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert texts[:2] == ["trained collective  0.50", "trained solo agent  0.16"]
    assert texts[2:] == ["overtakes solo at 20.0 s\n(18.5 to 22.0 s)"]
    vertical = [x[0] for x, _ in lines(axes) if len(set(x)) == 1]
    assert vertical == [84.0, 20.0]
    assert len(axes.collections) == 2  # a band for the lowest seed of each organisation only


def test_signs_of_life_draw_a_line_for_each_team_size_and_the_average():
    figure = signs_of_life(run(work__useful_tokens_per_s=[1.0, 2.0, 3.0], work__useful_tps_hires_3_4=[2.0, 2.0, 2.0]))
    drawn = figure.axes[0].get_lines()
    assert list(drawn[0].get_ydata()) == [1.0, 1.0]  # the run's average
    assert list(drawn[1].get_ydata()) == [1.0, 1.0, 1.0]  # 2 / 2
    assert drawn[1].get_label() == "3–4 hires"


def test_unknown_series_keep_their_words():
    assert series("of_one_kind")[0] == "of one kind"


def test_svg_is_well_formed_prefixed_described_and_free_of_fixed_colours():
    figure = learning_panel(PANELS[0], [FULL], curve("base", [0.0, 0.21, 0.42]))
    svg = to_svg(figure, "pic", 'a "quoted" <title>')
    root = ElementTree.fromstring(svg)
    assert root.attrib["aria-label"] == 'a "quoted" <title>'
    assert "width" not in root.attrib
    ids = re.findall(r'\bid="([^"]*)"', svg)
    assert ids and all(name.startswith("pic-") for name in ids)
    referred = set(re.findall(r"url\(#([^)]*)\)", svg)) | set(re.findall(r'href="#([^"]*)"', svg))
    assert referred and referred <= set(ids)
    fixed = {light for light, _ in PALETTE.values()} & set(re.findall(r"#[0-9a-f]{6}\b", svg))
    assert not fixed
    assert "var(--blue)" in svg and "var(--ink)" in svg


def test_palette_colours_are_distinct_so_that_each_maps_to_one_variable():
    lights = [light for light, _ in PALETTE.values()]
    assert len(set(lights)) == len(lights)


def test_equal_data_give_equal_bytes():
    def draw():
        figure = learning_curves([FULL], None)
        return to_png(figure, dpi=50), to_svg(figure, "a", "a")

    assert draw() == draw()
