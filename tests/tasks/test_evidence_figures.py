"""Figures of the grid: each draws what its rows hold; the report has their pictures, data and tables."""

from __future__ import annotations

import html

from tasks.evidence import evidence
from tasks.evidence_figures import FIGURES
from tasks.figure_style import series, to_png, to_svg
from tasks.organisations import ORGANISATIONS
from tasks.reporting import evidence_rows
from tests.tasks.test_evidence import GRID, PARAMS

ROWS = evidence(GRID, PARAMS)


def test_every_figure_draws_and_equal_rows_give_equal_bytes() -> None:
    for kind, (name, description, draw) in FIGURES.items():
        assert ROWS[kind], kind
        assert to_png(draw(ROWS[kind])) == to_png(draw(ROWS[kind]))
        svg = to_svg(draw(ROWS[kind]), name, description)
        assert html.escape(description) in svg and "<text" in svg


def test_the_steps_of_the_frontier_join_what_nothing_beats() -> None:
    axes = FIGURES["points"][2](ROWS["points"]).axes[0]
    steps = axes.lines[0].get_xydata().tolist()
    assert [[round(x, 6), round(y, 6)] for x, y in steps] == [[4.0, 0.3], [10.0, 0.6]]  # solo's 0.1 by 10 s is not there


def test_limits_show_fresh_rollouts_as_points_and_cut_ones_as_a_line() -> None:
    axes = FIGURES["limits"][2](ROWS["limits"]).axes[0]
    line = axes.lines[0].get_xydata().tolist()
    assert [[x, round(y, 6)] for x, y in line] == [[4.0, 0.2]]  # the long rollout cut at 4 s had earned 0.2, the fresh one 0.3


def test_every_organisation_has_a_name_a_colour_and_a_line() -> None:
    for organisation in ORGANISATIONS:
        label, _, _ = series(organisation.name)
        assert label != organisation.name.replace("_", " ") or organisation.name == label


def test_rows_of_the_report_have_labels() -> None:
    rows = evidence_rows({"evidence": ROWS})
    assert rows["matched"][0]["label"] == "trained solo agent, long"
    assert {row["label"] for row in rows["families"]} == {"trained collective", "trained solo agent"}
    assert evidence_rows({}) == {"matched": [], "families": [], "attempts": []}
