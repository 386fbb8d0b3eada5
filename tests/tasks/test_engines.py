"""A rollout worker serves chat models as it serves the small policy: adapters merged, probed, on both clocks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from rlcr_core import lora
from rlcr_core.config import Params
from rlcr_core.errors import ConfigError, WeightError
from rlcr_core.policy import load_policy
from rlcr_core.rollout import RolloutSpec
from rlcr_core.store import from_tables
from rlcr_core.types import RolloutKey, StopReason
from rlcr_core.weights import Published, save_checkpoint
from tasks.engines import build_engine, worker_threads
from tasks.organisations import organisations
from tasks.probe import Probe, make_probe
from tasks.task_sets import generate_split
from tasks.training import check_supported
from tasks.workers import RolloutWorker
from tests.support import changed
from tests.tiny_chat import chat_folder, chat_params


class Setting:
    """A base, adapters trained by hand, and a worker that nobody made into an actor."""

    def __init__(self, root: Path, params: Params) -> None:
        self.base, self.tokenizer = chat_folder(root / "base")
        self.params = chat_params(params, self.base, lora=True)
        self.tasks = generate_split(self.params.task_set, "train")
        self.worker = RolloutWorker(self.params, self.tasks[0])
        config = self.params.policy.lora
        assert config is not None
        model = load_policy(self.base)
        lora.inject(model, config, 0)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if ".lora_B" in name:
                    parameter.fill_(0.05)
        save_checkpoint(root / "c", model, self.tokenizer, {}, {}, lora.Adapters(config, self.base))
        self.published = Published.of(root / "c", 1, self.base)
        self.probe = make_probe(model, len(self.tokenizer))

    def specs(self, limit_s: float) -> list[RolloutSpec]:
        return [RolloutSpec(RolloutKey("r", 0, 0, r), self.tasks[0], limit_s) for r in range(2)]


@pytest.fixture
def setting(tmp_path: Path, params: Params) -> Setting:
    return Setting(tmp_path, params)


def test_adapters_are_merged_and_proved_and_wrong_ones_leave_the_old_weights(setting: Setting) -> None:
    base = Published.of(setting.base, 0)
    base_probe = make_probe(load_policy(setting.base), len(setting.tokenizer))
    assert asyncio.run(setting.worker.sync(base, base_probe)) == 0
    assert asyncio.run(setting.worker.sync(setting.published, setting.probe)) == 1
    wrong = Probe(setting.probe.ids, [[value - 0.5 for value in row] for row in setting.probe.expected])
    with pytest.raises(WeightError, match=r"difference 0\.5.*engine\.probe_tolerance"):
        asyncio.run(setting.worker.sync(base._replace(version=2), wrong))
    tables, _ = asyncio.run(setting.worker.run(setting.specs(6.0), setting.params))
    assert {turn.policy_version for rollout in from_tables(tables) for turn in rollout.turns()} == {1}


def test_a_chat_models_rollouts_are_the_same_twice_on_the_derived_clock(setting: Setting) -> None:
    asyncio.run(setting.worker.sync(setting.published, setting.probe))
    runs = [from_tables(asyncio.run(setting.worker.run(setting.specs(6.0), setting.params))[0]) for _ in range(2)]
    assert runs[0] == runs[1]
    assert all(rollout.stop_reason is StopReason.DEADLINE and rollout.error == "" for rollout in runs[0])
    assert all(turn.n_tokens <= setting.params.harness.max_turn_tokens for r in runs[0] for turn in r.turns())


def test_the_wall_clock_records_both_clocks(setting: Setting) -> None:
    params = changed(setting.params, {"rollouts": {"clock": "wall"}})
    asyncio.run(setting.worker.sync(setting.published, setting.probe))
    rollouts = from_tables(asyncio.run(setting.worker.run(setting.specs(1.0), params))[0])
    turns = [turn for rollout in rollouts for turn in rollout.turns()]
    assert len(rollouts) == 2 and turns and all(rollout.error == "" for rollout in rollouts)
    latency = params.latency
    for turn in (turn for turn in turns if not turn.cut):
        spoken_s = latency.turn_overhead_s + turn.prompt_tokens / latency.prefill_tps + turn.n_tokens / latency.decode_tps
        assert turn.derived_s == pytest.approx(spoken_s + turn.tool_s, abs=1e-6)
        assert 0.0 <= turn.start_s <= turn.end_s <= 1.0


def test_a_server_elsewhere_is_evaluated_and_never_trained_with(params: Params) -> None:
    server = changed(params, {"engine": {"kind": "openai", "url": "http://127.0.0.1:9", "model": "m"}})
    with pytest.raises(ConfigError, match="for evaluation only"):
        check_supported(server)
    chosen = organisations(["collective"], ["base", "collective", "alone", "solo", "mute"], is_server=True)
    assert [(o.name, o.policy, o.max_hires) for o in chosen] == [
        ("collective", "base", None), ("alone", "base", 0), ("mute", "base", None),
    ]  # fmt: skip


def test_threads_of_a_worker(setting: Setting, params: Params) -> None:
    assert worker_threads(params) == 1
    assert worker_threads(setting.params) >= 1


def test_a_chat_model_without_the_chat_harness_is_refused(setting: Setting, params: Params) -> None:
    with pytest.raises(ConfigError, match=r"change harness\.kind to chat"):
        build_engine(setting.base, params, setting.tasks[0], 0)
