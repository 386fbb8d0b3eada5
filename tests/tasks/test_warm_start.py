"""The kept base policy: the declared verb frequencies, no preference among modules, names or keys; the gate."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

import envs
from envs.workshop import grammar
from rlcr_core.base import CloneBatch, clone, soft_target_loss
from rlcr_core.config import Params, load_params
from rlcr_core.errors import GateError
from rlcr_core.policy import build_policy, decoder_hidden, head, load_policy
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import Task
from tasks.base_policy import base_digest
from tasks.warm_start import gate, make_tokenizer, measure, random_observations

PARAMS = load_params(Path(__file__).parents[2] / "params.yaml")
KEPT = Path(__file__).parents[2] / PARAMS.base.checkpoint


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    shape = {"packages": 4, "modules": 12, "parallel_share": 1.0, "coupling": 1.0}
    return envs.generate("workshop@1", families={"star": 1.0}, split="base-test", count=64, seed=9, **shape)


@pytest.fixture(scope="module")
def observations(tasks: list[Task]) -> list[list[str]]:
    """Fresh ones, half of them with facts drawn anew."""
    rng = random.Random(0)
    found = random_observations(tasks, make_tokenizer(tasks[0]), PARAMS, 1200)
    return [grammar.shuffle_facts(words, rng) if i % 2 else words for i, words in enumerate(found)]


@torch.inference_mode()
def predict(observations: list[list[str]], prefix: list[list[str]] | None = None) -> np.ndarray:
    """The kept base's distribution of the next word [n, V] after each observation and prefix."""
    tokenizer, model = WordTokenizer.load(KEPT), load_policy(KEPT)
    prefix = prefix or [[] for _ in observations]
    ids = torch.tensor([tokenizer.encode(" ".join([*o, *p])) for o, p in zip(observations, prefix, strict=True)])
    return head(model, decoder_hidden(model, ids, ids.shape[1] - 1)[:, 0]).softmax(-1).numpy()


def column(word: str) -> int:
    return WordTokenizer.load(KEPT).encode(word)[0]


@pytest.mark.parametrize("role", ["ceo", "staff"])
def test_verb_frequencies_are_the_declared_ones(role: str, observations: list[list[str]]) -> None:
    """Mean over observations of each verb's probability, against the mean of the declared (renormalised) one."""
    chosen = [o for o in observations if o[0] == role]
    assert len(chosen) > 100
    shares = predict(chosen).mean(0)
    declared = [grammar.next_word(o, []) for o in chosen]
    for verb in ("work", "hire", "wait", "post", "study", "tell", "fire"):
        expected = float(np.mean([d.get(verb, 0.0) for d in declared]))
        assert shares[column(verb)] == pytest.approx(expected, abs=0.02), verb


def test_no_preference_among_the_board_s_slots(observations: list[list[str]]) -> None:
    """After `work`, the four slots of boards with four different packages have a quarter each; their order is random."""
    boards = [o for o in observations if len({x for x, _ in grammar.read_observation(o).board}) == 4]
    assert len(boards) > 60
    shares = predict(boards, [["work"]] * len(boards))
    by_slot = np.array(
        [[p[column(x)] for x, _ in grammar.read_observation(o).board] for o, p in zip(boards, shares, strict=True)]
    )
    assert by_slot.mean(0) == pytest.approx([0.25] * 4, abs=0.04)


def test_no_preference_among_names(observations: list[list[str]]) -> None:
    teams = [o for o in observations if len(grammar.read_observation(o).team) == 2]
    shares = predict(teams, [["tell"]] * len(teams))
    names = [grammar.read_observation(o).team for o in teams]
    by_slot = np.array([[p[column(a)], p[column(b)]] for (a, b), p in zip(names, shares, strict=True)])
    shown = by_slot.mean(0)
    assert shown / shown.sum() == pytest.approx([0.5, 0.5], abs=0.03)
    assert shown.sum() > 0.8  # the rest goes to names that are not shown: the least practised slot of the grammar


def test_no_preference_among_keys(observations: list[list[str]]) -> None:
    """Where no key of x is visible only `nokey` is written; where one is, every key is copied alike."""
    probes = [probe for o in observations for place in ("notes", "messages") for probe in grammar.retrieval_probes(o, place)]
    prompts, keys = [p for p, _ in probes], [k for _, k in probes]
    shares = predict(prompts)
    copied: dict[str, list[float]] = {}
    for key, row in zip(keys, shares, strict=True):
        copied.setdefault(key, []).append(float(row[column(key)]))
    means = {key: float(np.mean(values)) for key, values in copied.items()}
    # declared: .60 for the written key and .10 / 16 more as a random one
    assert len(means) == 16
    assert all(value == pytest.approx(0.606, abs=0.1) for value in means.values()), means


def test_the_kept_base_fits_the_configuration_and_passes_its_gate(tasks: list[Task], observations: list[list[str]]) -> None:
    record = json.loads((KEPT / "base.json").read_text(encoding="utf-8"))
    assert record["digest"] == base_digest(PARAMS, tasks[0])
    tokenizer = WordTokenizer.load(KEPT)
    metrics = measure(load_policy(KEPT), observations, PARAMS, tokenizer, grammar)
    gate(metrics, PARAMS.base.gate_retrieval)
    for name in ("base/retrieval_notes", "base/retrieval_messages"):
        assert metrics[name] == pytest.approx(record["metrics"][name], abs=0.02)


def test_the_gate_names_figure_and_knob() -> None:
    gate({"base/retrieval_notes": 0.65, "base/retrieval_messages": 0.7}, 0.65)
    with pytest.raises(GateError, match=r"retrieval_messages 0\.640, expected at least 0\.65 \(base\.gate_retrieval\)"):
        gate({"base/retrieval_notes": 0.9, "base/retrieval_messages": 0.64}, 0.65)


def test_soft_target_loss_by_hand() -> None:
    """Head weights zero: the policy is uniform over V words. KL((1/2, 1/2) || uniform) = log(V / 2)."""
    model = build_policy(PARAMS.policy, 8, 0)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    target = torch.zeros(1, 8)
    target[0, 2:4] = 0.5
    with torch.inference_mode():
        loss = soft_target_loss(model, CloneBatch(torch.tensor([[2, 3, 4]]), torch.tensor([1]), target))
    assert float(loss) == pytest.approx(np.log(4.0), abs=1e-5)


def test_cloning_is_reproducible_and_learns(params: Params = PARAMS) -> None:
    target = torch.zeros(4, 8)
    target[:, 5] = 1.0
    batch = CloneBatch(torch.tensor([[2, 3, 4, 6]] * 4), torch.arange(4) * 4 + 3, target)
    weights = []
    for _ in range(2):
        model = build_policy(params.policy, 8, 0)
        final = clone(model, iter([batch] * 60), 60, 0.01)
        weights.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
    assert float(soft_target_loss(model, batch).detach()) < 0.05 < final
