"""Reading the report's inputs: what is missing, cut or not a number is named together with the stage that makes it."""

import numpy as np
import pytest

from rlcr_core.errors import DataError
from tasks.report_data import numbers, read_columns, read_curves, read_runs


def test_empty_cells_are_missing_values():
    np.testing.assert_array_equal(numbers(["1.5", "", "x"]), [1.5, np.nan, np.nan])


def test_a_cut_line_is_named(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text("iteration,a\n0,1\n1")
    with pytest.raises(DataError, match=r"line 3 has 1 fields, expected 2.*dvc repro -f train"):
        read_columns(path, ["iteration"], "train")


def test_a_missing_column_is_named(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text("organisation,seed,time_s,mean,low\nbase,,0,0,0\n")
    with pytest.raises(DataError, match=r"no column high.*evaluate"):
        read_curves(path)


def test_a_gap_in_an_evaluation_curve_is_refused(tmp_path):
    path = tmp_path / "curves.csv"
    path.write_text("organisation,seed,time_s,mean,low,high\nbase,,0,,0,0\n")
    with pytest.raises(DataError, match="non-finite value for base"):
        read_curves(path)


def test_runs_are_read_by_mode_and_seed_and_other_folders_ignored(tmp_path):
    for name in ("solo-12", "solo-0", "collective-0", "notes", "solo-last"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "curves.csv").write_text("iteration,roster/hires\n0,\n1,2.5\n")
    runs = read_runs(tmp_path)
    assert [(run.mode, run.seed) for run in runs] == [("collective", 0), ("solo", 0), ("solo", 12)]
    np.testing.assert_array_equal(runs[0].column("roster/hires"), [np.nan, 2.5])
