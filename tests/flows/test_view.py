"""`python -m flows.view`: a stored rollout becomes one file, and an unusable request one paragraph."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows import view
from rlcr_core.store import to_tables, write_rollouts
from rlcr_core.tokens import WordTokenizer
from tests.support import rollout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two rollouts of one group, whose returns are 0.25 and 0.75, and their tokenizer."""
    better = rollout(number=1)
    better.events[0].value = 0.75
    write_rollouts(tmp_path / "rollouts", to_tables([rollout(), better]))
    WordTokenizer([f"w{i}" for i in range(8)]).save(tmp_path)
    return tmp_path


def test_the_chosen_rollout_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "pages" / "one.html"
    assert view.main([str(folder / "rollouts"), "--pick", "worst", "--tokenizer", str(folder), "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "group 0, rollout 0: return 0.250, 0 hired, 2 turns" in said and str(out) in said
    assert '"advantage":-0.25' in out.read_text()  # 0.25 less the group's mean of 0.5


def test_a_rollout_that_is_not_there_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert view.main([str(folder / "rollouts"), "--group", "5", "--tokenizer", str(folder)]) == 1
    assert "group 5 to show; the folder has 2" in capsys.readouterr().err
