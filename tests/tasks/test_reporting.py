"""The report from a small project on disk: tables, missing and damaged inputs, one self-contained page."""

import csv
import dataclasses
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from flows import report as flow
from rlcr_core.config import load_params
from rlcr_core.errors import DataError
from rlcr_core.store import to_tables, write_rollouts
from rlcr_core.types import AgentRecord, Event, EventType, Rollout, RolloutKey, StopReason, Turn, TurnKind
from tasks import tracking
from tasks.comparison import write_comparison
from tasks.figures import Run
from tasks.grid import MAIN
from tasks.paths import Project
from tasks.reporting import build_report, csv_bytes, evaluation_rows, learning_table

PARAMS = Path(__file__).parents[2] / "params.yaml"
SUMMARY = {
    "limit_s": 84.0,
    "tasks": 64,
    "confidence": 0.95,
    "organisations": [
        {"name": "base", "seed": None, "mean": 0.128, "low": 0.11, "high": 0.15, "hires": 2.0, "true_share": 0.51},
        {"name": "collective", "seed": 0, "mean": 0.5, "low": 0.48, "high": 0.52, "hires": 7.4, "true_share": 0.97},
        {"name": "solo", "seed": 0, "mean": 0.16, "low": 0.15, "high": 0.17, "hires": 0.0, "true_share": None},
    ],
    "differences": [
        {"a": "collective", "b": "solo", "seed": 0, "mean": 0.34, "low": 0.32, "high": 0.36},
        {"a": "solo", "b": "base", "seed": 0, "mean": 0.032, "low": -0.004, "high": 0.06},
    ],
    "crossing": {"mean": 42.0, "low": 40.0, "high": 44.0, "never_share": 0.0},
}


def write_csv(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(csv_bytes(columns))


def small_rollout(hires):
    agents = [AgentRecord(i, f"<agent {i}>", i, i) for i in range(hires + 1)]
    turns = {a.id: [Turn(a.id, 0, 0, [1], [2], [-0.1], a.id, a.id + 4, TurnKind.WORK, 0, "work", "ok")] for a in agents}
    events = [Event(4.0, EventType.REWARD, 0, -1, 0.5)]
    return Rollout(RolloutKey("r", 0, 0, 0), "t-1", 84.0, 1, agents, turns, events, StopReason.DEADLINE, 84.0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project folder after all stages; tests copy it before they break something."""
    root = tmp_path_factory.mktemp("project")
    artifacts = root / "artifacts"
    shutil.copy(PARAMS, root / "params.yaml")
    for mode in ("collective", "solo"):
        columns = {"iteration": [0, 1], "reward/return_mean": [0.1, 0.2], "time/limit_s": [16.0, 84.0]}
        if mode == "collective":
            columns |= {"roster/hires": [1.0, 7.0], "talk/true_share": [float("nan"), 0.9]}
            columns |= {"work/useful_tokens_per_s": [1.0, 3.0], "work/useful_tps_hires_5_8": [float("nan"), 4.0]}
        write_csv(artifacts / "train" / f"{mode}-0" / "curves.csv", columns)
    curves = {"organisation": ["base"] * 2 + ["collective"] * 2 + ["solo"] * 2, "seed": [""] * 2 + [0] * 4}
    curves |= {"time_s": [0.0, 84.0] * 3, "mean": [0.0, 0.128, 0.0, 0.5, 0.0, 0.16]}
    curves |= {"low": [0.0, 0.11, 0.0, 0.48, 0.0, 0.15], "high": [0.0, 0.15, 0.0, 0.52, 0.0, 0.17]}
    write_csv(artifacts / "evaluation" / "curves.csv", curves)
    (artifacts / "evaluation" / "summary.json").write_text(json.dumps(SUMMARY))
    for when, hires in (("before", 0), ("after", 2)):
        write_rollouts(artifacts / "evaluation" / f"timeline_{when}", to_tables([small_rollout(hires)]))
    write_csv(artifacts / "schedule.csv", {"iteration": [0, 1], "limit_s": [16.0, 84.0]})
    (artifacts / "base").mkdir()
    (artifacts / "base" / "metrics.json").write_text(json.dumps({"gate/notes": 0.71234}))
    return root


@pytest.fixture
def project(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "copy")
    return Project(tmp_path / "copy")


def build(project):
    return build_report(project, project.root / "params.yaml")


class Page(HTMLParser):
    """Tags opened and closed, addresses referred to, and the text."""

    VOID = ("meta", "link", "br", "img", "hr")

    def __init__(self, text):
        super().__init__()
        self.open, self.mismatched, self.addresses, self.words = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href", "srcset")]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.mismatched.append(tag)

    def handle_data(self, data):
        self.words.append(data)


def test_evaluation_bars_are_percent_of_the_highest_bound():
    # The highest bound is 0.52: base 0.11, 0.128, 0.15 -> 21.15, 24.62, 28.85 percent.
    rows = evaluation_rows(SUMMARY)
    assert rows[0]["bar"] == pytest.approx((21.1538, 24.6154, 28.8462), abs=1e-3)
    assert [row["label"] for row in rows] == ["base collective", "trained collective", "trained solo agent"]


def test_an_organisation_without_interval_is_refused():
    entry = {"name": "solo", "mean": 0.1, "low": None, "high": 0.2}
    with pytest.raises(DataError, match=r"lacks a numeric mean, low or high"):
        evaluation_rows({**SUMMARY, "organisations": [entry]})


def test_learning_table_leaves_missing_values_empty():
    runs = [
        Run("collective", 0, {"iteration": np.arange(2.0), "roster/hires": np.array([np.nan, 0.1])}),
        Run("solo", 3, {"iteration": np.arange(1.0)}),
    ]
    assert csv_bytes(learning_table(runs)).decode() == (
        "mode,seed,iteration,roster/hires\ncollective,0,0,\ncollective,0,1,0.1\nsolo,3,0,\n"
    )


def test_the_page_is_whole_and_self_contained(project):
    report = build(project)
    assert report.missing == ()
    text = report.index.read_text()
    page = Page(text)
    assert page.mismatched == [] and page.open == []
    pictures = {"learning_curves", "return_against_time", "signs_of_life", "timeline_before", "timeline_after"}
    beside = {f"{name}.{kind}" for name in pictures for kind in ("png", "csv")}
    assert {address for address in page.addresses if not address.startswith("#")} == beside
    assert {path.name for path in project.report.iterdir()} == beside | {"index.html"}
    assert "url(http" not in text and "@import" not in text
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    identifiers = re.findall(r'\bid="([^"]*)"', text)
    assert len(set(identifiers)) == len(identifiers)
    assert {a[1:] for a in page.addresses if a.startswith("#")} <= set(identifiers)


def test_the_page_says_what_was_found_and_how_to_repeat_it(project):
    report = build(project)
    words = " ".join(" ".join(Page(report.index.read_text()).words).split())
    assert all(text in words for text in report.findings)
    for part in ("0.500", "0.480 to 0.520", "97%", "42.0 s", "0.7123", "params.yaml", "dvc repro report", "group_size"):
        assert part in words, part
    assert str(project.root) not in report.index.read_text()


def test_names_from_data_are_escaped(project):
    text = build(project).index.read_text()
    assert "<agent" not in text
    assert "&lt;agent 1&gt;" in text


def test_equal_inputs_give_equal_bytes(project):
    build(project)
    first = {path.name: path.read_bytes() for path in project.report.iterdir()}
    shutil.rmtree(project.report)
    build(project)
    assert {path.name: path.read_bytes() for path in project.report.iterdir()} == first


def test_plotted_data_lie_beside_the_pictures(project):
    build(project)
    rows = list(csv.DictReader((project.report / "return_against_time.csv").open()))
    last = [row for row in rows if row["organisation"] == "collective"][-1]
    assert (float(last["time_s"]), float(last["mean"])) == (84.0, 0.5)
    work = list(csv.DictReader((project.report / "signs_of_life.csv").open()))
    # The run's average is (1 + 3) / 2 = 2; five to eight hires made 4 tokens/s in iteration 1: 4 / 2.
    assert work == [{"iteration": "0", "hires_5_8": ""}, {"iteration": "1", "hires_5_8": "2.0"}]


def test_missing_optional_inputs_become_sentences(project):
    shutil.rmtree(project.evaluation / "timeline_before")
    shutil.rmtree(project.artifacts / "train" / "solo-0")
    project.base_metrics.unlink()
    project.schedule.unlink()
    report = build(project)
    words = " ".join(Page(report.index.read_text()).words)
    assert len(report.missing) == 4
    assert all(text in words for text in report.missing)
    assert not (project.report / "timeline_before.png").exists()


@pytest.mark.parametrize(
    ("path", "stage"),
    [
        ("evaluation/summary.json", "dvc repro evaluate"),
        ("evaluation/curves.csv", "dvc repro evaluate"),
        ("train", "dvc repro train"),
    ],
)
def test_missing_required_inputs_name_the_stage(project, path, stage):
    gone = project.artifacts / path
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    with pytest.raises(DataError, match=stage):
        build(project)


def test_the_report_reads_what_the_comparison_writes(project):
    # Every organisation earns 0.5 on both tasks: no difference, no crossing, nothing may be claimed.
    rollouts = [small_rollout(2), dataclasses.replace(small_rollout(2), task_id="t-2", key=RolloutKey("r", 0, 1, 0))]
    params = load_params(PARAMS)
    names = ("base", "collective", "alone", "solo", "scrambled", "mute")
    grid = {(name, params.evaluation.limit_s, MAIN, 0): rollouts for name in names}
    write_comparison(project.evaluation, grid, params)
    report = build(project)
    openings = [text.split(" is shown")[0] for text in report.findings[:7]]
    assert openings[0] == "No difference between the trained collective and the trained solo agent"
    assert openings[5] == "No difference between the collective's policy alone and the trained solo agent"
    assert openings[6] == "No moment"
    assert "collective with scrambled messages" in report.index.read_text()


@pytest.mark.parametrize("text", ['{"limit_s": 84', "[]", '{"limit_s": 84}'])
def test_a_damaged_summary_names_file_and_stage(project, text):
    (project.evaluation / "summary.json").write_text(text)
    with pytest.raises(DataError, match=r"summary\.json.*dvc repro -f evaluate"):
        build(project)


def test_the_flow_prints_findings_and_the_place_and_logs_the_report(project, monkeypatch, capsys):
    logged = []
    monkeypatch.setattr(tracking, "log_report", lambda project, params: logged.append((project, params.tracking.uri)))
    monkeypatch.chdir(project.root)
    assert flow.main([]) == 0
    assert logged == [(project, "sqlite:///mlflow.db")]
    out = capsys.readouterr().out
    assert "- The trained collective earns more" in out
    assert f"report: {project.report / 'index.html'}" in out


def test_the_flow_turns_an_error_into_one_paragraph(project, monkeypatch, capsys):
    monkeypatch.chdir(project.root)
    (project.evaluation / "summary.json").unlink()
    assert flow.main([]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: The report needs") and err.count("\n") == 1
