"""Contexts keep the sampled ids, and packing changes neither tokens nor what a token may attend to."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from rlcr_core.errors import ConfigError, DataError
from rlcr_core.losses import policy_loss
from rlcr_core.packing import Context, contexts_of, pack, padding_share
from rlcr_core.policy import action_logprobs
from rlcr_core.types import Rollout, RolloutKey, Turn, TurnKind


def turn(index, observation, action, logprobs=None, agent=0, context=0, version=0):
    logprobs = [-float(i + 1) for i in range(len(action))] if logprobs is None else logprobs
    return Turn(agent, index, context, observation, action, logprobs, 0.0, 1.0, TurnKind.WORK, version)


def rollout(**trajectories):
    """Trajectories by agent: a0=[turn, …], a1=…"""
    by_agent = {int(name[1:]): turns for name, turns in trajectories.items()}
    return Rollout(RolloutKey("run", 3, 1, 2), "task", 10.0, seed=0, trajectories=by_agent)


def make_context(ids, n_actions, number=0, advantage=0.5):
    """A context whose last `n_actions` tokens are actions; logprobs and versions number its tokens."""
    n = len(ids)
    is_action = np.arange(n) >= n - n_actions
    behaviour = np.where(is_action, -np.arange(n), 0).astype(np.float32)
    versions = np.arange(n, dtype=np.int32)
    return Context(np.array(ids, np.int32), is_action, behaviour, advantage, number, 0, versions, number)


def test_a_transcript_joins_its_turns_and_a_window_starts_anew():
    turns = [turn(0, [5, 6], [7, 8], [-0.5, -0.25], version=3), turn(1, [9], [], version=4), turn(2, [1], [2], [-1.0])]
    (joined,) = contexts_of(rollout(a0=turns), 0.75, 11)
    assert joined.ids.tolist() == [5, 6, 7, 8, 9, 1, 2]
    assert joined.is_action.tolist() == [False, False, True, True, False, False, True]
    assert joined.behaviour_logprobs.tolist() == [0, 0, -0.5, -0.25, 0, 0, -1.0]
    assert joined.versions.tolist() == [3, 3, 3, 3, 4, 0, 0]
    assert (joined.advantage, joined.rollout, joined.agent, joined.context) == (0.75, 11, 0, 0)
    for number, t in enumerate(turns):
        t.context = number
    windows = contexts_of(rollout(a0=turns), 0.75, 11)
    # The middle turn sampled nothing, so its own window trains nothing.
    assert [(c.ids.tolist(), c.context) for c in windows] == [([5, 6, 7, 8], 0), ([1, 2], 2)]


turns_of_an_agent = st.lists(
    st.tuples(st.lists(st.integers(1, 50), min_size=1), st.lists(st.integers(1, 50)), st.integers(0, 1)), max_size=6
)


@given(agents=st.lists(turns_of_an_agent, max_size=4))
def test_trained_ids_are_exactly_the_sampled_ids_with_one_advantage(agents):
    trajectories, sampled = {}, []
    for agent, described in enumerate(agents):
        context, turns = 0, []
        for index, (observation, action, step) in enumerate(described):
            context += step
            turns.append(turn(index, observation, action, agent=agent, context=context))
            sampled += [(agent, token) for token in action]
        trajectories[f"a{agent}"] = turns
    contexts = contexts_of(rollout(**trajectories), -0.25, 4)
    assert [(c.agent, int(token)) for c in contexts for token in c.ids[c.is_action]] == sampled
    for batch in pack(contexts, 16, one_per_row=False):
        assert set(batch.advantage_N.tolist()) == {-0.25}
        assert set(batch.rollout_N.tolist()) == {4}


def test_a_silent_agent_changes_no_context():
    speaking = [turn(0, [5], [6])]
    alone = contexts_of(rollout(a0=speaking), 1.0, 0)
    beside = contexts_of(rollout(a0=speaking, a1=[], a2=[turn(0, [9, 9], [], agent=2)]), 1.0, 0)
    assert [c.ids.tolist() for c in beside] == [c.ids.tolist() for c in alone] == [[5, 6]]


@pytest.mark.parametrize(
    ("bad", "got"),
    [
        (turn(1, [5], [6, 7], [-1.0], agent=4, context=1), "1 logprobs for 2 sampled tokens"),
        (turn(1, [5], [6], [float("nan")], agent=4, context=1), "the logprob nan"),
        (turn(1, [5], [6], [-float("inf")], agent=4, context=1), "the logprob -inf"),
        (turn(1, [5], [6], [-1e300], agent=4, context=1), "the logprob -1e\\+300"),  # -inf as float32
        (turn(1, [5], [6], [0.01], agent=4, context=1), "the logprob 0.01"),
        (turn(1, [], [6], agent=4, context=1), "nothing predicts it"),
        (turn(0, [5], [6], agent=4, context=1), "index 0, context 1 after 0, 1"),
        (turn(1, [5], [6], agent=4, context=0), "index 1, context 0 after 0, 1"),
        (turn(1, [5], [6], agent=3, context=1), "in the trajectory of agent 4"),
    ],
)
def test_bad_turns_are_named(bad, got):
    good = turn(0, [2], [3], agent=4, context=1)
    if "nothing" in got:
        good.context, good.index = 0, 0
    named = rf"iteration=3, group=1, rollout=2\), agent {bad.agent}, turn {bad.index}: got .*{got}"
    with pytest.raises(DataError, match=named):
        contexts_of(rollout(a4=[good, bad]), 1.0, 0)


def test_logprobs_of_a_certain_token_may_round_above_zero():
    (context,) = contexts_of(rollout(a0=[turn(0, [5], [6], [5e-7])]), 1.0, 0)
    assert context.behaviour_logprobs[1] == np.float32(5e-7)


def test_an_advantage_that_is_not_finite_is_refused():
    with pytest.raises(DataError, match="advantage inf"):
        contexts_of(rollout(a0=[turn(0, [5], [6])]), float("inf"), 0)


def test_rows_are_padded_on_the_right():
    (batch,) = pack([make_context([4, 5, 6], 1, 0), make_context([7, 8, 9, 1, 2], 2, 1)], 10, one_per_row=True)
    # Longest first; positions run on through the padding.
    assert batch.input_ids_BT.tolist() == [[7, 8, 9, 1, 2], [4, 5, 6, 0, 0]]
    assert batch.position_ids_BT.tolist() == [[0, 1, 2, 3, 4]] * 2
    assert batch.segment_ids_BT.tolist() == [[0] * 5, [0, 0, 0, -1, -1]]
    assert batch.action_index_N.tolist() == [3, 4, 7]  # t = 3 and 4 of row 0; 1 * 5 + 2
    assert batch.target_ids_N.tolist() == [1, 2, 6]
    assert batch.behaviour_N.tolist() == [-3.0, -4.0, -2.0]
    assert batch.version_N.tolist() == [3, 4, 2]
    assert batch.rollout_N.tolist() == [1, 1, 0]
    assert batch.attention_mask() is None
    assert padding_share([batch]) == 2 / 10


def test_several_contexts_of_a_row_restart_positions_and_do_not_see_each_other():
    contexts = [make_context([9, 9], 1, 0), make_context([3, 4, 5, 6, 7], 1, 1), make_context([8, 8], 1, 2)]
    (batch,) = pack(contexts, 100, one_per_row=False)
    assert batch.input_ids_BT.tolist() == [[3, 4, 5, 6, 7], [9, 9, 8, 8, 0]]
    assert batch.position_ids_BT.tolist() == [[0, 1, 2, 3, 4], [0, 1, 0, 1, 4]]
    assert batch.segment_ids_BT.tolist() == [[0] * 5, [0, 0, 1, 1, -1]]
    mask_TT = batch.attention_mask()[1, 0].int().tolist()
    assert mask_TT == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 1, 1, 0], [0, 0, 0, 0, 1]]


@pytest.mark.parametrize("one_per_row", [True, False])
def test_a_context_longer_than_a_batch_goes_alone(one_per_row):
    contexts = [make_context(range(1, n + 1), 1, n) for n in (3, 20, 4, 15)]
    shapes = [tuple(b.input_ids_BT.shape) for b in pack(contexts, 8, one_per_row)]
    # 8 positions hold two rows of 4; 20 and 15 exceed them.
    assert shapes == [(1, 20), (1, 15), (2, 4)]


@given(
    lengths=st.lists(st.integers(2, 12), max_size=30),
    limit=st.integers(1, 40),
    one_per_row=st.booleans(),
    n_alike=st.integers(0, 10),
    data=st.data(),
)
def test_every_context_is_packed_once_within_the_limit(lengths, limit, one_per_row, n_alike, data):
    sizes = [data.draw(st.integers(1, n - 1)) for n in lengths]
    contexts = [make_context([i + 1] * n, k, i) for i, (n, k) in enumerate(zip(lengths, sizes, strict=True))]
    tails = [[7] * data.draw(st.integers(0, 3)) + [8, i] for i in range(n_alike)]
    contexts += [make_context([*BEGINNING, *tail], 1, 100 + i) for i, tail in enumerate(tails)]
    limit += data.draw(st.sampled_from([0, 50, 200]))
    found = []
    for batch in pack(contexts, limit, one_per_row):
        rows, width = batch.input_ids_BT.shape
        assert rows * width <= limit or rows == 1
        for ids_T, segments_T, positions_T in zip(batch.input_ids_BT, batch.segment_ids_BT, batch.position_ids_BT, strict=True):
            for segment in range(int(segments_T.max()) + 1):
                is_own = (segments_T == segment) | (segments_T == -2)
                ids = ids_T[is_own].tolist()
                assert positions_T[is_own].tolist() == list(range(len(ids)))
                found.append(ids)
        assert torch.equal(batch.input_ids_BT.flatten()[batch.action_index_N], batch.target_ids_N)
        # Token t of a context carries the logprob -t, so order and alignment show.
        assert torch.equal(batch.behaviour_N, -batch.position_ids_BT.flatten()[batch.action_index_N].float())
    assert sorted(found) == sorted(c.ids.tolist() for c in contexts)


def make_model():
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=30, initializer_range=0.5, **shape)).eval()


def test_packed_rows_give_the_logprobs_of_separate_rows():
    model = make_model()
    lengths = [9, 5, 4, 3, 3, 2]
    contexts = [make_context(torch.randint(1, 30, (n,)).tolist(), n - 1, i) for i, n in enumerate(lengths)]
    (packed,) = pack(contexts, 1000, one_per_row=False)
    assert packed.input_ids_BT.shape == (3, 9)  # 9; 5 + 4; 3 + 3 + 2
    with torch.no_grad():
        got_N = action_logprobs(model, packed, 1.0)[0]
        for i, context in enumerate(contexts):
            logits_TV = model(torch.tensor(context.ids[None], dtype=torch.long)).logits[0]
            expected_T = logits_TV[:-1].log_softmax(-1).gather(-1, torch.tensor(context.ids[1:, None]).long())[:, 0]
            torch.testing.assert_close(got_N[packed.rollout_N == i], expected_T, rtol=1e-4, atol=1e-5)


BEGINNING = [1 + i % 29 for i in range(40)]  # longer than packing.SHARED_TOKENS = 32


def alike(*tails, n_actions=1):
    """Contexts that begin with the same 40 tokens."""
    return [make_context([*BEGINNING, *tail], n_actions, i) for i, tail in enumerate(tails)]


def test_a_common_beginning_stands_once_in_its_row():
    """42, 43 and 42 tokens, the last of each an action: 40 are shared, of every context one token that predicts is left.

    One row: 40 + 3 + 2 + 2 = 47, the longest first. Its actions are at 40 + 2, 40 + 3 + 1 and 40 + 3 + 2 + 1.
    """
    (batch,) = pack(alike([3, 4], [5, 6, 7], [8, 9]), 100, one_per_row=False)
    assert batch.input_ids_BT.tolist() == [[*BEGINNING, 5, 6, 7, 3, 4, 8, 9]]
    assert batch.position_ids_BT.tolist() == [[*range(40), 40, 41, 42, 40, 41, 40, 41]]
    assert batch.segment_ids_BT.tolist() == [[-2] * 40 + [0, 0, 0, 1, 1, 2, 2]]
    assert batch.action_index_N.tolist() == [42, 44, 46]
    assert batch.rollout_N.tolist() == [1, 0, 2]
    mask_TT = batch.attention_mask()[0, 0]
    assert mask_TT[44].nonzero().flatten().tolist() == [*range(40), 43, 44]
    assert mask_TT[10].nonzero().flatten().tolist() == list(range(11))


def test_what_predicts_an_action_and_what_is_an_action_is_never_shared():
    """All equal, the action after 38 tokens: 37 are shared, token 37 predicts it in each context of its own."""
    contexts = [make_context(BEGINNING, 2, i) for i in range(2)]
    (batch,) = pack(contexts, 100, one_per_row=False)
    assert batch.segment_ids_BT.tolist() == [[-2] * 37 + [0] * 3 + [1] * 3]
    assert batch.action_index_N.tolist() == [38, 39, 41, 42]


def test_other_beginnings_and_full_rows_share_nothing_with_each_other():
    """Two roles make two rows; the second's 41st token predicts the action, so 40 are shared.

    A row has room for min(100, 4 * 40) tokens: of ten contexts of 40 + 20 three fit, 40 + 3 * 20.
    """
    roles = [*alike([3, 4], [5, 6]), *[make_context([2, *BEGINNING, i], 1, 10 + i) for i in (1, 2)]]
    (batch,) = pack(roles, 100, one_per_row=False)
    assert batch.input_ids_BT.tolist() == [[*BEGINNING, 3, 4, 5, 6], [2, *BEGINNING[:39], BEGINNING[39], 1, BEGINNING[39], 2]]
    full = pack(alike(*[[i] * 20 for i in range(1, 11)]), 100, one_per_row=False)
    assert [tuple(b.input_ids_BT.shape) for b in full] == [(1, 100)] * 3 + [(1, 60)]
    assert int((full[-1].segment_ids_BT == -2).sum()) == 0  # the last is alone


def test_shared_rows_give_the_logprobs_and_gradients_of_separate_rows():
    model = make_model()
    contexts = alike([3, 4, 5], [6, 7], [8, 9, 10, 11], [12, 13, 14], n_actions=2)
    results = []
    for batches in (pack(contexts, 1000, one_per_row=False), [b for c in contexts for b in pack([c], 1000, True)]):
        model.zero_grad()
        logprobs = {}
        for batch in batches:
            got_N = action_logprobs(model, batch, 1.0)[0]
            (got_N * torch.arange(1.0, 3.0).repeat(len(got_N) // 2)).sum().backward()
            for i in range(len(contexts)):
                if (batch.rollout_N == i).any():
                    logprobs[i] = got_N[batch.rollout_N == i].detach()
        results.append((logprobs, [p.grad.clone() for p in model.parameters()]))
    for i in range(len(contexts)):
        torch.testing.assert_close(results[0][0][i], results[1][0][i], rtol=1e-4, atol=1e-5)
    for shared, separate in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(shared, separate, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("one_per_row", [True, False])
def test_observation_tokens_have_no_loss(one_per_row):
    model = make_model()
    contexts = [make_context([4, 5, 6, 7, 8], 2, 0), make_context([9, 10, 11], 1, 1), make_context([12, 13], 1, 2)]
    (batch,) = pack(contexts, 100, one_per_row)
    states = []
    model.model.norm.register_forward_hook(lambda module, inputs, output: states.append(output))
    logprobs_N, entropy_N = action_logprobs(model, batch, 1.0)
    loss, _ = policy_loss(
        logprobs_N, logprobs_N.detach(), batch.advantage_N, torch.ones(4), clip=0.2, entropy_N=entropy_N, entropy=0.1
    )
    # Nothing mixes positions after the last norm, so its gradient says which predictions are in the loss: those of
    # tokens 3 and 4 of the first context, 2 of the second, 1 of the third, each made one position earlier.
    (gradient_BTD,) = torch.autograd.grad(loss, states)
    touched_BT = (gradient_BTD.abs().sum(-1) > 0).int().tolist()
    rows = [[0, 1, 0, 0, 0], [1, 0, 0, 0, 0]] if one_per_row else [[0, 1, 0, 1, 0]]
    assert touched_BT == [[0, 0, 1, 1, 0], *rows]


def test_impossible_input_is_refused():
    with pytest.raises(ConfigError, match="micro_batch_tokens"):
        pack([make_context([1, 2], 1)], 0, True)
    with pytest.raises(DataError, match="rollout 7, agent 0, context 7"):
        pack([make_context([1, 2], 2, 7)], 10, True)  # an action at the start
    assert pack([], 10, True) == [] == pack([], 10, False)
    assert padding_share([]) == 0.0
