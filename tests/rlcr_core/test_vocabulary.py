"""Growing a vocabulary: old rows stay, new rows are what each method says, other words are refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from rlcr_core.config import load_params
from rlcr_core.errors import ConfigError, WeightError
from rlcr_core.policy import build_policy, load_policy, save_policy
from rlcr_core.tokens import WordTokenizer
from rlcr_core.vocabulary import METHODS, Method, combinations, grow
from tests.support import ROOT

OLD = ("go", *(f"a{i}" for i in range(6)), *(f"p{i}" for i in range(4)))
NEW = (*(f"b{i}" for i in range(8)), "q0")
CLASSES = ((*OLD[1:7], *NEW[:8]), (*OLD[7:], "q0"))


def policy() -> tuple[PreTrainedModel, WordTokenizer]:
    tokenizer = WordTokenizer(OLD)
    config = load_params(ROOT / "params.yaml").policy.model_copy(update={"hidden_size": 16, "intermediate_size": 16})
    return build_policy(config, len(tokenizer), 0), tokenizer


def rows(model: PreTrainedModel) -> torch.Tensor:
    return model.get_input_embeddings().weight.detach()  # type: ignore[no-any-return, union-attr]


@pytest.mark.parametrize("method", METHODS)
def test_every_new_row_is_an_affine_combination_of_trained_ones(method: Method) -> None:
    deviations = np.random.default_rng(0).standard_normal((5, 3))
    mix = combinations(method, 7, deviations - deviations.mean(axis=0), 1)
    assert mix.shape == (7, 5)
    assert mix.sum(axis=1) == pytest.approx(np.ones(7))  # so the class's mean is in every row
    assert (combinations(method, 7, deviations, 1) == combinations(method, 7, deviations, 1)).all()


def test_what_each_method_keeps_of_the_trained_rows() -> None:
    rng = np.random.default_rng(3)
    trained = rng.standard_normal((6, 4)) * [3.0, 1.0, 0.5, 0.1] + [1.0, 2.0, 3.0, 4.0]
    mean, covariance = trained.mean(axis=0), np.cov(trained.T)
    deviations = trained - mean

    drawn = combinations("gaussian", 20_000, deviations, 0) @ trained
    # The error of a mean of 20,000 draws is sd / 141; of a variance v about v * sqrt(2 / 20,000) = 0.01 v.
    assert np.abs(drawn.mean(axis=0) - mean).max() < 0.1
    assert np.cov(drawn.T) == pytest.approx(covariance, abs=0.05 * covariance.max())

    # Six rows mixed by an orthogonal matrix have the sum of outer products that the six trained deviations have; taking
    # the mean of the coefficients off changes nothing, because deviations add up to zero.
    mixed = combinations("orthogonal", 6, deviations, 0) @ trained - mean
    assert mixed.T @ mixed == pytest.approx(deviations.T @ deviations)

    norms = np.linalg.norm(combinations("rescaled", 50, deviations, 0) @ trained - mean, axis=1)
    assert all(np.isclose(norm, np.linalg.norm(deviations, axis=1)).any() for norm in norms)

    weights = combinations("mixture", 50, deviations, 0)
    assert ((weights > 0).sum(axis=1) == 2).all() and weights[weights > 0].min() >= 0.25


def test_old_rows_and_ids_stay_the_checkpoint_stays_tied_and_says_the_same(tmp_path) -> None:
    model, tokenizer = policy()
    ids = torch.tensor([[2, 5, 9, 3]])
    with torch.no_grad():
        before, logits = rows(model).clone(), model(input_ids=ids).logits
        grown = grow(model, tokenizer, (*OLD, *NEW), CLASSES, "gaussian", seed=4)
        save_policy(model, grown, tmp_path / "grown")
        again = load_policy(tmp_path / "grown")
        assert grown.words == ("<pad>", "<unk>", *OLD, *NEW) and WordTokenizer.load(tmp_path / "grown").words == grown.words
        assert rows(again).shape == (len(grown), 16) and torch.equal(rows(again)[: len(tokenizer)], before)
        assert torch.equal(again.get_output_embeddings().weight, rows(again))  # type: ignore[union-attr]
        torch.testing.assert_close(again(input_ids=ids).logits[..., : len(tokenizer)], logits)
    assert len({tuple(row.tolist()) for row in rows(again)}) == len(grown)  # no new row is like another


def test_other_words_are_refused() -> None:
    model, tokenizer = policy()
    with pytest.raises(ConfigError, match="must begin with the policy's 11 words"):
        grow(model, tokenizer, (*NEW, *OLD), CLASSES)
    with pytest.raises(ConfigError, match="the new word 'stop' is in no class"):
        grow(model, tokenizer, (*OLD, "stop"), CLASSES)
    with pytest.raises(ConfigError, match="at least two trained ones"):
        grow(model, tokenizer, (*OLD, "went"), [("go", "went")])
    with pytest.raises(WeightError, match="rows for 13 tokens, its tokenizer 3"):
        grow(model, WordTokenizer(OLD[:1]), (*OLD, *NEW), CLASSES)
