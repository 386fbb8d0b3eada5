"""The whole suite's environment: tools quiet and local, one thread, one Ray for all tests that need it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlcr_core.config import Params
from tasks.runtime import prepare

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # a local test cluster needs no token file
prepare()  # before any fixture or test imports a tool that reads the environment


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: two processes then end at about the same time."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def params() -> Params:
    """The checked-in parameters, made small."""
    from tests.support import tiny_params

    return tiny_params()


@pytest.fixture
def project_dir(tmp_path: Path, params: Params) -> Path:
    """A project folder with tasks, schedule and an untrained base, as the first DVC stages leave it."""
    from tests.support import make_project

    return make_project(tmp_path, params)


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """A local Ray, started once a session."""
    import ray

    from tasks.workers import start_ray

    start_ray()
    yield
    ray.shutdown()
