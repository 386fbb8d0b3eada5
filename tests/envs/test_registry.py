"""The registry of environments: versioned ids, lazy imports, clear refusals."""

import subprocess
import sys

import pytest

import envs
from envs.workshop import grammar
from envs.workshop.environment import WorkshopEnvironment
from rlcr_core.errors import TaskError
from rlcr_core.types import Environment, Task

SIZES = {"packages": 2, "modules": 3, "parallel_share": 1.0, "coupling": 1.0}


def test_workshop_is_registered_whole():
    assert "workshop@1" in envs.registered()
    tasks = envs.generate("workshop@1", families={"star": 1.0}, split="test", count=3, seed=0, **SIZES)
    assert [task.environment for task in tasks] == ["workshop@1"] * 3
    environment = envs.make(tasks[0])
    assert isinstance(environment, WorkshopEnvironment) and isinstance(environment, Environment)
    assert envs.make(tasks[0]) is not environment
    assert envs.grammar("workshop@1") is grammar


def test_unknown_ids_are_refused_with_the_known_ones():
    with pytest.raises(TaskError, match=r"task t1 names the environment 'workshop@9', known are .*workshop@1"):
        envs.make(Task("t1", "workshop@9", "test", 0, {}))
    with pytest.raises(TaskError, match=r"task_set.environment names the environment 'moon@1', known are .*workshop@1"):
        envs.generate("moon@1", families={}, split="test", count=0, seed=0, **SIZES)
    with pytest.raises(TaskError, match=r"known are .*workshop@1"):
        envs.grammar("moon@1")


def test_registering(monkeypatch):
    monkeypatch.setattr(envs, "_ENTRIES", dict(envs._ENTRIES))  # forget what this test registers
    envs.register("copy@2", WorkshopEnvironment)
    assert "copy@2" in envs.registered()
    for attempt in (
        lambda: envs.generate("copy@2", families={}, split="test", count=0, seed=0, **SIZES),
        lambda: envs.grammar("copy@2"),
    ):
        with pytest.raises(TaskError, match=r"copy@2 .*register it with"):
            attempt()
    with pytest.raises(TaskError, match="copy@2 is already registered"):
        envs.register("copy@2", WorkshopEnvironment)
    for name in ("copy", "copy@", "@1", "copy@one"):
        with pytest.raises(TaskError, match="is name@version"):
            envs.register(name, WorkshopEnvironment)


def test_importing_the_registry_is_light_and_playing_needs_no_torch():
    code = (
        "import sys, envs\n"
        "assert 'envs.workshop' not in sys.modules\n"
        "import envs.checks\n"
        "task, = envs.generate('workshop@1', families={'real': 1.0}, split='test', count=1, seed=0, packages=1,"
        " modules=2, parallel_share=1.0, coupling=1.0)\n"
        "envs.make(task); envs.grammar('workshop@1')\n"
        "heavy = {'torch', 'transformers', 'ray', 'prefect', 'mlflow', 'dvc', 'great_expectations', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "[]", "")
