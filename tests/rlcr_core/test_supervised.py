"""Supervised learning: only what agents said is learnt, the loss is the mean over those tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rlcr_core.contexts import Context
from rlcr_core.errors import DataError
from rlcr_core.supervised import held_out_loss, supervise
from tests.tiny_chat import tiny_llama


def context(ids: list[int], said: list[int]) -> Context:
    """Tokens with the positions that an agent said."""
    is_action = np.zeros(len(ids), np.bool_)
    is_action[said] = True
    n = len(ids)
    return Context(np.array(ids, np.int32), is_action, np.zeros(n, np.float32), 1.0, 0, 0, np.zeros(n, np.int32), 0)


def test_the_held_out_loss_is_the_mean_negative_logprob_of_what_was_said() -> None:
    model = tiny_llama(50)
    ids = [3, 9, 4, 7, 11]
    logprobs_TV = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    # Said: positions 2 and 4, predicted from positions 1 and 3.
    expected = -(logprobs_TV[1, 4] + logprobs_TV[3, 11]) / 2
    assert held_out_loss(model, [context(ids, [2, 4])], 64) == pytest.approx(expected.item(), abs=1e-5)


def test_what_was_said_is_learnt_and_what_was_read_is_not() -> None:
    model = tiny_llama(50)
    said, read = [context([5, 6, 20, 21], [2, 3])], [context([5, 6, 20, 21], [1])]
    before = held_out_loss(model, said, 64), held_out_loss(model, read, 64)
    last = supervise(model, said, steps=40, batch_size=1, lr=0.01, micro_batch_tokens=64, seed=0)
    after = held_out_loss(model, said, 64), held_out_loss(model, read, 64)
    assert before[0] > 3.0 and after[0] < 0.1 and last < 1.0  # ln 50 = 3.9 nats at first
    assert after[1] > math.log(50) / 2


def test_the_gradient_does_not_depend_on_the_micro_batches() -> None:
    contexts = [context([1, 2, 3, 4 + i], [2, 3]) for i in range(4)]
    states = []
    for size in (4, 64):
        model = tiny_llama(50)
        supervise(model, contexts, steps=2, batch_size=4, lr=0.01, micro_batch_tokens=size, seed=0)
        states.append(model.state_dict())
    assert all(torch.allclose(states[0][name], states[1][name], atol=1e-4) for name in states[0])


def test_nothing_said_is_refused() -> None:
    with pytest.raises(DataError, match=r"no token that an agent said.*base\.observations"):
        supervise(tiny_llama(50), [context([1, 2], [])], steps=1, batch_size=1, lr=0.1, micro_batch_tokens=8, seed=0)
