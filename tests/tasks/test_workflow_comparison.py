"""flows.compare from the command to its files, with workers in this process; and what its summary says."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml

from flows import compare as flow
from rlcr_core.config import Params
from rlcr_core.errors import ConfigError
from rlcr_core.statistics import Interval
from tasks.workflow_comparison import COLUMNS, Question, _verdict
from tests.support import LocalPool
from tests.tiny_chat import chat_folder, chat_params


class Pool(LocalPool):
    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None: ...


def run(folder: Path, *more: str) -> int:
    base = str(Path("envs/workshop/base").resolve())
    sizes = ["--tasks", "3", "--agents", "2", "--attempts", "2", "--limit", "40", "--acceptable", "0.04"]
    return flow.main(["--policy", base, "--params", str(folder / "params.yaml"), *sizes, "--out", str(folder / "out"), *more])


def test_a_comparison_and_its_files(
    project_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(flow, "WorkerPool", Pool)
    assert run(project_dir) == 0
    printed = capsys.readouterr().out
    assert "2 attempts, oracle picks" in printed and "coupled: against the same without messages" in printed
    summary = json.loads((project_dir / "out" / "summary.json").read_text())
    assert set(summary["task_sets"]) == {"separable", "coupled"}
    for found in summary["task_sets"].values():
        ways = found["organisations"]
        assert set(ways) == {"one_agent", "attempts_oracle", "attempts_claim", "collective", "mute", "scrambled"}
        assert ways["attempts_oracle"]["acceptable_share"] >= ways["one_agent"]["acceptable_share"]
        # 0.04 of 48 modules are two; the cheapest two take 2 * 6.5 agent-seconds. With two hires by T there are
        # T + (T - 2 - 3 - 2) + (T - 4 - 3 - 2) = 3 T - 16 of them: 13 at 9.667 s. Dearer modules come later.
        assert 9.666 <= found["bound_s"] <= 14.0
    with (project_dir / "out" / "rollouts.csv").open() as file:
        header, *rows = csv.reader(file)
    assert tuple(header) == COLUMNS and len(rows) == 2 * (3 * 2 + 3 * 3)
    first = (project_dir / "out" / "summary.json").read_bytes()
    assert run(project_dir) == 0 and (project_dir / "out" / "summary.json").read_bytes() == first


def test_a_chat_models_folder_is_compared_in_the_same_way(
    tmp_path: Path, params: Params, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tiny model of random weights never says a call: everything is beyond the limit and nothing is hidden."""
    folder, _ = chat_folder(tmp_path / "model")
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(chat_params(params, folder).model_dump(mode="json")))
    monkeypatch.setattr(flow, "WorkerPool", Pool)
    sizes = ["--tasks", "2", "--agents", "1", "--attempts", "2", "--limit", "12", "--acceptable", "0.5"]
    out = ["--params", str(tmp_path / "params.yaml"), "--out", str(tmp_path / "out")]
    assert flow.main(["--policy", str(folder), *sizes, *out]) == 0
    assert "> 12" in capsys.readouterr().out
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    found = summary["task_sets"]["coupled"]["organisations"]["attempts_oracle"]
    assert found["acceptable_share"] == 0 and found["time_s"]["value"] is None and found["spent_in_vain"]["tokens"] > 0


def test_what_messages_did() -> None:
    more, less, none = Interval(0.1, 0.05, 0.15), Interval(-9.0, -12.0, -6.0), Interval(0.0, -1.0, 1.0)
    assert _verdict(more, less) == "helped"  # a higher return, sooner
    assert _verdict(none, more) == "harmed"  # later
    assert _verdict(more, more) == "both"
    assert _verdict(none, none) == "unclear"


@pytest.mark.parametrize(
    ("field", "value"), [("acceptable", 0.0), ("tasks", 1), ("agents", 0), ("limit_s", 0.0), ("attempts", 0)]
)
def test_a_comparison_of_nothing_is_refused(field: str, value: float) -> None:
    sound = {"environment": "workshop@1", "acceptable": 0.8, "tasks": 2, "agents": 1, "limit_s": 9.0, "attempts": 1}
    with pytest.raises(ConfigError, match=f"--{field.removesuffix('_s')}"):
        Question(**(sound | {field: value}))  # type: ignore[arg-type]
