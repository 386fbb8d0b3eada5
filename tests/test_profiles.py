"""Every checked-in parameter file is complete, valid and free of anybody's machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rlcr_core.config import Params, load_params
from tasks.task_sets import generate_split
from tests.support import ROOT

PROFILES = sorted((ROOT / "docs" / "profiles").glob("*.yaml"))


def named(path: Path) -> str:
    return path.stem


def test_the_documented_profiles_are_there() -> None:
    assert {"demo-llm", "demo-vllm", "node-8gpu", "ray-cluster"} <= {path.stem for path in PROFILES}


@pytest.mark.parametrize("path", PROFILES, ids=named)
def test_a_profile_is_valid_and_its_tasks_can_be_made(path: Path) -> None:
    params = load_params(path)
    assert params.harness.kind == "chat" and params.policy.model
    assert len(generate_split(params.task_set, "validation")) == params.task_set.validation


@pytest.mark.parametrize("path", PROFILES, ids=named)
def test_a_profile_is_complete_so_that_no_default_hides_in_it(path: Path) -> None:
    """Left out are only the keys of another engine and of another aggregation."""
    given = yaml.safe_load(path.read_text(encoding="utf-8"))
    optional = {"engine": {"url", "model", "api_key_variable", "request_timeout_s", "tensor_parallel", "memory_share",
                           "kv_cache_gib"}, "update": {"constant_tokens"}}  # fmt: skip
    assert set(given) == set(Params.model_fields)
    for name, field in Params.model_fields.items():
        wanted = set(field.annotation.model_fields) - optional.get(name, set())  # type: ignore[union-attr]
        assert wanted <= set(given[name]), name


@pytest.mark.parametrize("path", PROFILES, ids=named)
def test_the_sizes_of_a_profile_fit_together(path: Path) -> None:
    """A first prompt holds rules, an observation, a summary and results; a context needs room for it and some turns."""
    params = load_params(path)
    sizes = params.harness
    prompt = sizes.max_observation_tokens + sizes.max_summary_tokens + sizes.max_result_tokens
    assert params.context.max_tokens >= 2 * (prompt + sizes.max_turn_tokens)
    assert params.update.micro_batch_tokens >= params.context.max_tokens  # the longest row is one micro-batch
    assert (params.rollouts.clock == "wall") == (params.engine.kind == "vllm")


@pytest.mark.parametrize("path", PROFILES, ids=named)
def test_no_profile_names_a_host_or_somebodys_folder(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"\w+://\S*", text)) == {"sqlite:///mlflow.db"}
    assert not re.search(r"(^|[\s\"'])/(home|work|tmp|root|mnt|data)\b", text)
    assert max(map(len, text.splitlines())) <= 130
