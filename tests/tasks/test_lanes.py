"""Commands side by side: all run, in order, a few at a time; a failure names its command and starts nothing new."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcr_core.errors import StageError
from tasks.lanes import Command, run_lanes


def command(folder: Path, name: str, code: str) -> Command:
    (folder / f"job_{name}.py").write_text(code)
    return Command(name, folder, f"job_{name}", (), folder / "logs" / f"{name}.txt")


def test_every_command_runs_once_and_says_when_it_is_done(tmp_path: Path) -> None:
    made = [command(tmp_path, f"n{i}", f"open('ran', 'a').write('{i}')") for i in range(4)]
    done: list[str] = []
    run_lanes(made, 2, lambda finished, seconds: done.append(finished.name))
    assert sorted((tmp_path / "ran").read_text()) == ["0", "1", "2", "3"]
    assert sorted(done) == ["n0", "n1", "n2", "n3"]


def test_two_lanes_have_two_prefect_homes(tmp_path: Path) -> None:
    # Each waits for the other's file, so both lanes are taken at once.
    code = (
        "import os, pathlib, time\n"
        "home = pathlib.Path(os.environ['PREFECT_HOME']); pathlib.Path(home.name).touch()\n"
        "end = time.monotonic() + 60\n"
        "while len(list(pathlib.Path('.').glob('lane-*'))) < 2 and time.monotonic() < end: time.sleep(0.01)\n"
    )
    run_lanes([command(tmp_path, "a", code), command(tmp_path, "b", code)], 2, lambda *_: None)
    assert sorted(path.name for path in tmp_path.glob("lane-*")) == ["lane-0", "lane-1"]


def test_a_failure_shows_the_end_of_its_output_and_stops_what_has_not_begun(tmp_path: Path) -> None:
    bad = command(tmp_path, "bad", "print('the reason'); raise SystemExit(3)")
    later = command(tmp_path, "later", "open('ran', 'a').write('x')")
    with pytest.raises(StageError, match=r"bad ended with exit code 3[\s\S]*the reason[\s\S]*run the same command again"):
        run_lanes([bad, later], 1, lambda *_: None)
    assert not (tmp_path / "ran").exists()
