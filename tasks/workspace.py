"""A workspace: a folder in which `dvc repro` runs the pipeline with another parameter file, beside the project's own results.

Code is linked, not copied, so stages see every change; artifacts, runs and the MLflow store are the workspace's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rlcr_core.config import Params, load_params
from rlcr_core.errors import StoreError
from rlcr_core.manifests import atomic_write, reason
from tasks.paths import Project

LINKED = ("envs", "flows", "rlcr_core", "tasks")
COPIED = ("dvc.yaml",)


def prepare_workspace(root: Path, profile: Path, folder: Path) -> Params:
    """Make or refresh a workspace of the project in `root` for a parameter file; returns the parameters.

    The profile is read first: raises ConfigError with nothing written, StoreError when the disk refuses.
    """
    params = load_params(profile)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in LINKED:
            link = folder / name
            if link.is_symlink() and link.resolve() != (root / name).resolve():
                link.unlink()
            if not link.is_symlink():
                link.symlink_to(os.path.relpath(root / name, folder), target_is_directory=True)
        _share_models(root, folder)
    except OSError as error:
        raise StoreError(
            f"Cannot prepare the workspace {folder}: {reason(error)}. Name a folder that can be written and holds nothing else."
        ) from error
    for name in COPIED:
        atomic_write(folder / name, (root / name).read_bytes())
    atomic_write(folder / "params.yaml", profile.read_bytes())
    return params


def _share_models(root: Path, folder: Path) -> None:
    """Base models taken by name are kept once, in the project."""
    models, link = Project(root).models, Project(folder).models
    models.mkdir(parents=True, exist_ok=True)
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        link.symlink_to(os.path.relpath(models, link.parent), target_is_directory=True)


def repro(folder: Path) -> int:
    """`dvc repro` in the workspace; returns its exit code."""
    dvc = [sys.executable, "-m", "dvc"]
    environment = os.environ | {"PYTHONPATH": str(folder.resolve()), "DVC_NO_ANALYTICS": "1"}
    if not (folder / ".dvc").is_dir():
        subprocess.run([*dvc, "init", "--no-scm", "--quiet"], cwd=folder, env=environment, check=True)
    return subprocess.run([*dvc, "repro"], cwd=folder, env=environment).returncode
