"""A workspace has the profile's parameters and the project's code, and leaves the project alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcr_core.errors import ConfigError, StoreError
from tasks.paths import Project
from tasks.workspace import COPIED, LINKED, prepare_workspace
from tests.support import ROOT


def test_it_links_the_code_and_copies_the_parameters_and_may_be_repeated(tmp_path: Path) -> None:
    profile = tmp_path / "other.yaml"
    profile.write_bytes((ROOT / "params.yaml").read_bytes() + b"# other\n")
    folder = tmp_path / "work" / "space"
    for _ in range(2):
        params = prepare_workspace(ROOT, profile, folder)
    assert params.train.iterations > 0
    assert (folder / "params.yaml").read_bytes() == profile.read_bytes()
    assert all((folder / name).resolve() == ROOT / name for name in LINKED)
    assert all((folder / name).read_bytes() == (ROOT / name).read_bytes() for name in COPIED)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*LINKED, *COPIED, "params.yaml", "artifacts"])
    assert Project(folder).models.resolve() == Project(ROOT).models


def test_a_profile_that_cannot_be_used_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("task_set: {}\n")
    with pytest.raises(ConfigError, match=r"bad\.yaml cannot be used"):
        prepare_workspace(ROOT, tmp_path / "bad.yaml", tmp_path / "space")
    assert not (tmp_path / "space").exists()


def test_a_folder_that_holds_something_else_is_named(tmp_path: Path) -> None:
    (tmp_path / "space").write_text("a file")
    with pytest.raises(StoreError, match=r"Cannot prepare the workspace .*space"):
        prepare_workspace(ROOT, ROOT / "params.yaml", tmp_path / "space")
