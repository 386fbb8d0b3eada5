"""The tools' environment variables: set once, and never over what the user has set."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from tasks.runtime import defaults, prepare


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in defaults(Path("/x")):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "")  # so that monkeypatch restores what `prepare` sets
        monkeypatch.delenv(name)
    return monkeypatch


def test_state_lies_inside_the_project(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    prepare(tmp_path)
    assert os.environ["PREFECT_HOME"] == str(tmp_path / ".prefect" / version("prefect"))  # two versions share no database
    assert (tmp_path / ".prefect" / version("prefect")).is_dir()  # Prefect does not make a folder in a folder
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert os.environ["OMP_NUM_THREADS"] in ("1", "2")


def test_what_the_user_has_set_wins(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    clean.setenv("PREFECT_HOME", str(tmp_path / "elsewhere"))
    clean.setenv("OMP_NUM_THREADS", "7")
    prepare(tmp_path)
    assert (os.environ["PREFECT_HOME"], os.environ["OMP_NUM_THREADS"]) == (str(tmp_path / "elsewhere"), "7")


def test_local_servers_are_reached_without_a_proxy_and_the_list_is_kept(clean: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    clean.setenv("NO_PROXY", "example.org")
    clean.setenv("no_proxy", "")
    prepare(tmp_path)
    prepare(tmp_path)  # twice: nothing is added twice
    assert os.environ["NO_PROXY"] == "example.org,127.0.0.1,localhost"
    assert os.environ["no_proxy"] == "127.0.0.1,localhost"
