"""The chat engine: growing transcripts over many turns, caches, aborts, limits, weights, random schedules."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from rlcr_core.config import load_params
from rlcr_core.engines.chat import ChatEngine
from rlcr_core.engines.memory import Reading
from rlcr_core.engines.running import MAX_PREFIXES
from rlcr_core.engines.sampling import choose_wide
from rlcr_core.engines.torch import choose
from rlcr_core.errors import EngineFault, WeightError
from rlcr_core.policy import build_policy
from rlcr_core.types import Sample, SampleRequest
from tests.rlcr_core.test_llama import VOCABULARY, tiny

MODEL = tiny()
STOP = 11
SYSTEM = [(7 * i) % VOCABULARY for i in range(40)]  # what all begin with: longer than running.PREFIX_TOKENS = 32


def request(ids: list[int], agent: int = 0, seed: int = 0, new: bool = True, budget: int = 6) -> SampleRequest:
    return SampleRequest((0, agent), ids, new, seed, budget)


def expected_logprobs(model: PreTrainedModel, context: list[int], sample: Sample, temperature: float = 1.0) -> list[float]:
    """Logprobs of the sample after its context at `temperature`, by transformers' own forward over the whole."""
    ids = context + sample.ids
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0, len(context) - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(sample.ids)[:, None])[:, 0].tolist()


def run(engine: ChatEngine) -> dict[tuple[int, int], Sample]:
    """Step until nothing is left to do; each request finishes once."""
    finished: list[tuple[tuple[int, int], Sample]] = []
    while True:
        new = engine.step()
        if not new and not engine._books.runs:
            assert len(dict(finished)) == len(finished)
            return dict(finished)
        finished += new


@pytest.mark.parametrize("kind", ["llama-tied", "qwen3", "lfm2"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_turns_of_growing_transcripts_equal_the_full_forward(kind: str, temperature: float) -> None:
    """Six turns, agents that join later and sit turns out, prompts of 0 to 9 ids; lfm2 goes through transformers' caches."""
    model = build_policy(load_params().policy, VOCABULARY, 0) if kind == "lfm2" else tiny(kind)
    engine = ChatEngine(model, [STOP], temperature)
    rng = np.random.default_rng(0)
    history: dict[int, list[int]] = {}
    for turn in range(6):
        agents = [agent for agent in range(6) if agent <= 2 * turn and (agent + turn) % 4]
        requests = []
        for agent in agents:
            prompt = rng.integers(0, VOCABULARY, int(rng.integers(0 if agent in history else 1, 10))).tolist()
            requests.append(
                request(prompt, agent, seed=100 * turn + agent, new=agent not in history, budget=1 + (agent + turn) % 7)
            )
            history[agent] = history.get(agent, []) + prompt
        for r, sample in zip(requests, engine.sample(requests), strict=True):
            agent = r.cache_key[1]
            assert sample.logprobs == pytest.approx(expected_logprobs(model, history[agent], sample, temperature), abs=1e-4)
            assert len(sample.ids) == r.max_tokens or sample.ids[-1] == STOP
            assert STOP not in sample.ids[:-1] and len(sample.ids) <= r.max_tokens
            history[agent] += sample.ids  # among them the last one, which is not read before the next turn


def test_batch_and_order_do_not_change_what_is_sampled() -> None:
    requests = [request([2 + i, 5, 9 - i][: 1 + i % 3], agent=i, seed=i, budget=9) for i in range(7)]
    more = [request([3, i], agent=i, seed=50 + i, new=False, budget=9) for i in range(7)]
    results = []
    for order, limits in (
        (range(7), {}),
        (range(6, -1, -1), {}),
        (range(7), {"max_running": 2}),
        (range(7), {"step_tokens": 1}),
    ):
        engine = ChatEngine(MODEL, [], **limits)
        turns = [dict(zip(order, engine.sample([batch[i] for i in order]), strict=True)) for batch in (requests, more)]
        results.append([[turn[i].ids for i in range(7)] for turn in turns])
    single = ChatEngine(MODEL, [])
    results.append([[single.sample([r])[0].ids for r in batch] for batch in (requests, more)])
    assert all(result == results[0] for result in results)


def test_sampling_follows_the_seed_of_the_request() -> None:
    engine = ChatEngine(MODEL, [])
    first, second, third = (engine.sample([request([4, 5], seed=seed, budget=20)])[0] for seed in (1, 1, 2))
    assert first == second and first.ids != third.ids


def test_aborted_tokens_are_exact_and_stay_in_the_context() -> None:
    """Three steps give three tokens: the same as the first three of a whole sample. The next turn goes on after them."""
    whole = ChatEngine(MODEL, []).sample([request([4, 5, 6], seed=3, budget=8)])[0]
    engine = ChatEngine(MODEL, [], version=4)
    engine.begin(request([4, 5, 6], seed=3, budget=8))
    engine.begin(request([7], agent=1, seed=9, budget=8))
    assert [engine.step() for _ in range(3)] == [[], [], []]
    ((key, partial),) = engine.abort([(0, 0), (0, 5)])
    assert key == (0, 0) and partial.ids == whole.ids[:3] and partial.version == 4
    assert partial.logprobs == pytest.approx(whole.logprobs[:3], abs=1e-5)
    assert engine.abort([(0, 0)]) == []
    assert list(run(engine)) == [(0, 1)]
    after = engine.sample([request([8, 9], seed=5, new=False)])[0]
    context = [4, 5, 6, *partial.ids, 8, 9]
    assert after.logprobs == pytest.approx(expected_logprobs(MODEL, context, after), abs=1e-4)
    assert engine.tokens_sampled == 3 + 8 + 6 and engine.prompt_tokens == 3 + 1 + 2


def test_a_request_aborted_before_it_is_read_leaves_its_prompt_to_the_next_turn() -> None:
    engine = ChatEngine(MODEL, [], step_tokens=4)
    engine.begin(request(list(range(10)), budget=3))
    assert engine.step() == []  # four of ten read
    assert engine.abort([(0, 0)]) == [((0, 0), Sample([], [], 0))]
    engine.begin(request([20], new=False, budget=3))
    sample = run(engine)[0, 0]
    assert sample.logprobs == pytest.approx(expected_logprobs(MODEL, [*range(10), 20], sample), abs=1e-4)


def test_an_abort_during_a_step_takes_no_token_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread aborts, begins anew and releases while the model computes: nothing waits, nothing is lost or invented."""
    engine = ChatEngine(MODEL, [])
    for agent in range(3):
        engine.begin(request([4, 5 + agent], agent, seed=agent, budget=8))
    assert engine.step() == []
    read, entered, leave = engine._memory.read, threading.Event(), threading.Event()

    def slow(readings: list[Reading]) -> torch.Tensor:
        logits = read(readings)
        entered.set()
        assert leave.wait(10)
        return logits

    monkeypatch.setattr(engine._memory, "read", slow)
    thread = threading.Thread(target=engine.step)
    thread.start()
    assert entered.wait(10)
    partials = dict(engine.abort([(0, 0), (0, 1)]))
    engine.begin(request([30, 31], 0, seed=7, new=False, budget=2))
    engine.begin(request([32], 1, seed=8, budget=2))  # a new context under an old key
    engine.release([(0, 2)])
    leave.set()
    thread.join(10)
    monkeypatch.setattr(engine._memory, "read", read)
    assert [len(sample.ids) for sample in partials.values()] == [1, 1]
    samples = run(engine)
    assert sorted(samples) == [(0, 0), (0, 1)]
    for key, context in (((0, 0), [4, 5, *partials[0, 0].ids, 30, 31]), ((0, 1), [32])):
        assert samples[key].logprobs == pytest.approx(expected_logprobs(MODEL, context, samples[key]), abs=1e-4)
    with pytest.raises(EngineFault, match="not cached"):
        engine.begin(request([1], 2, new=False))


def test_no_more_than_max_running_are_read_at_once() -> None:
    engine = ChatEngine(MODEL, [], max_running=3)
    sizes, read = [], engine._memory.read
    engine._memory.read = lambda readings: sizes.append(len(readings)) or read(readings)  # type: ignore[method-assign]
    engine.sample([request([3, i], i, i, budget=2) for i in range(8)])
    # groups of 3, 3 and 2 requests, each read twice: its prompt, then the first token sampled
    assert sizes == [3, 3, 3, 3, 2, 2]


def test_prompts_are_read_in_pieces_while_others_go_on() -> None:
    engine = ChatEngine(MODEL, [], step_tokens=5)
    lengths: list[list[int]] = []
    read = engine._memory.read

    def spy(readings: list[Reading]) -> torch.Tensor:
        lengths.append([len(reading.ids) for reading in readings])
        return read(readings)

    engine._memory.read = spy  # type: ignore[method-assign]
    for agent, n in enumerate((4, 7)):
        engine.begin(request(list(range(n)), agent, budget=3))
    run(engine)
    # 5 a step: 4 + 1 of 7; then the first samples (1 each step) while 5 and the last 1 of the second follow
    assert lengths == [[4, 1], [1, 5], [1, 1], [1], [1]]


def test_a_context_that_is_not_cached_is_an_engine_fault_and_starts_nothing() -> None:
    engine = ChatEngine(MODEL, [])
    with pytest.raises(EngineFault, match=r"\(0, 1\) is not cached"):
        engine.sample([request([3]), request([4], agent=1, new=False)])
    assert engine.step() == [] and engine.prompt_tokens == 0
    engine.sample([request([3])])
    engine.release([(0, 0), (9, 9)])
    with pytest.raises(EngineFault, match="not cached"):
        engine.sample([request([3], new=False)])
    assert engine._memory.pool.n_slots == 0  # type: ignore[attr-defined]  # the memory went with the last context


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (request([]), "0 tokens of context"),
        (request([3], budget=0), "max_tokens 0"),
        (request([3, VOCABULARY]), "expected 0..96"),
        (request([3, -1]), "-1..3"),
        (request([3] * 2045, budget=4), "2048 positions; lower context.max_tokens"),
    ],
)
def test_requests_that_cannot_be_served(bad: SampleRequest, message: str) -> None:
    engine = ChatEngine(MODEL, [])
    with pytest.raises(EngineFault, match=message):
        engine.begin(bad)
    assert engine.step() == []


def test_one_agent_takes_one_turn_at_a_time() -> None:
    engine = ChatEngine(MODEL, [])
    with pytest.raises(EngineFault, match="same cache_key"):
        engine.sample([request([3]), request([4])])
    engine.begin(request([3]))
    with pytest.raises(EngineFault, match="already"):
        engine.begin(request([4]))
    with pytest.raises(EngineFault, match="sample came while 1 requests ran"):
        engine.sample([request([3], agent=1)])
    with pytest.raises(EngineFault, match="sync came while"):
        engine.sync(dict(MODEL.named_parameters()), 1)
    assert engine.version == 0 and len(run(engine)) == 1


@pytest.mark.parametrize("kind", ["llama-tied", "llama-untied", "qwen2", "lfm2"])
def test_nothing_after_a_sync_depends_on_old_weights(kind: str) -> None:
    """Stale weights (tied heads among them) and stale caches: the engine answers like a fresh one, old contexts are gone."""
    old, new = ((build_policy(load_params().policy, VOCABULARY, s) if kind == "lfm2" else tiny(kind, s)) for s in (0, 1))
    fresh = ChatEngine(new, [], version=8)
    expected = fresh.sample([request([3, 4, 5])])
    engine = ChatEngine(old, [])
    assert engine.sample([request([3, 4, 5])])[0].ids != expected[0].ids
    engine.sync(dict(new.named_parameters()), 8)
    with pytest.raises(EngineFault, match="not cached"):
        engine.sample([request([6], new=False)])
    assert engine.sample([request([3, 4, 5])]) == expected and expected[0].version == 8
    ids = [[2, 9, 4, 7, 11], [5, 6], [8], []]
    probed = engine.probe(ids)
    assert [len(row) for row in probed] == [4, 1, 0, 0]
    for row, logprobs in zip(ids[:2], probed[:2], strict=True):
        assert logprobs == pytest.approx(expected_logprobs(new, row[:1], Sample(row[1:], [], 0)), abs=1e-4)


@pytest.mark.parametrize("kind", ["llama-tied", "llama-untied"])
def test_the_engine_keeps_weights_of_its_own(kind: str) -> None:
    """Training goes on in place on the tensors that were synced, and on those it was built from: nobody samples with that."""
    built_from, synced, reference = tiny(kind, 0), tiny(kind, 1), tiny(kind, 1)
    engine = ChatEngine(built_from, [])
    engine.sync(dict(synced.named_parameters()), 1)
    with torch.no_grad():
        for parameter in [*built_from.parameters(), *synced.parameters()]:
            parameter.mul_(-3.0)
    sample = engine.sample([request([3, 4, 5])])[0]
    assert sample.logprobs == pytest.approx(expected_logprobs(reference, [3, 4, 5], sample), abs=1e-4)


def test_weights_that_do_not_fit_change_nothing() -> None:
    engine = ChatEngine(tiny(seed=0), [], version=3)
    first = engine.sample([request([2, 3, 4])])[0]
    state = dict(tiny(seed=1).named_parameters())
    state.pop("model.layers.1.mlp.down_proj.weight")
    with pytest.raises(WeightError, match=r"layers\.1\.mlp\.down_proj"):
        engine.sync(state, 4)
    after = engine.sample([request([5], new=False)])[0]  # the context is still there
    assert engine.version == after.version == 3
    assert after.logprobs == pytest.approx(expected_logprobs(tiny(seed=0), [2, 3, 4, *first.ids, 5], after), abs=1e-4)


def test_damaged_weights_are_an_engine_fault_and_the_next_sync_heals() -> None:
    good = tiny()
    damaged = {name: p.detach() * (float("nan") if "mlp.up" in name else 1.0) for name, p in good.named_parameters()}
    engine = ChatEngine(tiny(), [])
    engine.sync(damaged, 1)
    with pytest.raises(EngineFault, match="not finite"):
        engine.sample([request([3]), request([4], agent=1)])
    assert engine.step() == []
    engine.sync(dict(good.named_parameters()), 2)
    sample = engine.sample([request([3], budget=9)])[0]
    assert sample.logprobs == pytest.approx(expected_logprobs(good, [3], sample), abs=1e-4)


def test_a_model_that_fails_is_an_engine_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ChatEngine(MODEL, [])

    def broken(_: object) -> torch.Tensor:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine._memory, "read", broken)
    with pytest.raises(EngineFault, match="out of memory"):
        engine.sample([request([3])])
    monkeypatch.undo()
    assert len(engine.sample([request([3])])) == 1


class Player:
    """One agent of a random schedule, with the ids its context must hold."""

    def __init__(self, agent: int) -> None:
        self.agent, self.turns = agent, 0
        self.ids: list[int] = []
        self.running = False


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_random_schedules_of_turns_equal_the_full_forward(data: st.DataObject) -> None:
    """Begin, step, abort, release and new contexts, some that begin alike, in any order: samples are a full forward's."""
    engine = ChatEngine(MODEL, [STOP], max_running=data.draw(st.integers(1, 4)), step_tokens=data.draw(st.integers(1, 24)))
    players = {(0, agent): Player(agent) for agent in range(5)}

    def take(key: tuple[int, int], sample: Sample) -> None:
        player = players[key]
        if sample.ids:
            assert sample.logprobs == pytest.approx(expected_logprobs(MODEL, player.ids, sample), abs=1e-4)
        player.ids += sample.ids
        player.running = False

    for _ in range(data.draw(st.integers(5, 25))):
        action = data.draw(st.sampled_from(["begin", "begin", "step", "step", "step", "abort", "release"]))
        key = data.draw(st.sampled_from(sorted(players)))
        player = players[key]
        if action == "step":
            for finished, sample in engine.step():
                take(finished, sample)
        elif action == "abort":
            for finished, sample in engine.abort([key]):
                take(finished, sample)
            assert not player.running
        elif action == "release":
            engine.release([key])
            player.ids, player.running = [], False
        elif not player.running:
            new = not player.ids or data.draw(st.booleans())
            ids = data.draw(st.lists(st.integers(0, VOCABULARY - 1), min_size=int(new), max_size=9))
            if new and data.draw(st.booleans()):
                ids = SYSTEM[: data.draw(st.integers(30, 40))] + ids
            engine.begin(SampleRequest(key, ids, new, 7 * player.turns + player.agent, data.draw(st.integers(1, 5))))
            player.ids = ([] if new else player.ids) + ids
            player.running, player.turns = True, player.turns + 1
    for key, sample in run(engine).items():
        take(key, sample)
    assert not any(player.running for player in players.values())


# -- the wide choice ---------------------------------------------------------------------------------------------------


def test_the_wide_choice_picks_by_inverse_cdf() -> None:
    """1,000 equal tokens in 4 blocks: u falls into cell floor(1000 u); every logprob is -ln 1000."""
    u = np.array([0.0, 0.0005, 0.2555, 0.2565, 0.5, 0.9995, 1 - 2**-53])
    ids, logprobs = choose_wide(torch.zeros(7, 1000), u)
    assert ids.tolist() == [0, 0, 255, 256, 500, 999, 999]
    assert logprobs == pytest.approx([-np.log(1000)] * 7, abs=1e-6)


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 1200), st.integers(0, 1000), st.floats(0.1, 12.0))
def test_the_wide_choice_is_the_plain_one(width: int, seed: int, spread: float) -> None:
    """Equal to the float64 rule unless u lies within 1e-6 of a cell's bound."""
    rng = np.random.default_rng(seed)
    logits, u = torch.from_numpy(spread * rng.standard_normal((16, width))).float(), rng.random(16)
    ids, logprobs = choose_wide(logits, u)
    plain_ids, plain_logprobs = choose(logits, u)
    bounds = logits.double().softmax(-1).cumsum(-1).numpy()
    for i in range(16):
        if np.abs(bounds[i] - u[i]).min() > 1e-6:
            assert ids[i] == plain_ids[i]
            assert logprobs[i] == pytest.approx(plain_logprobs[i], abs=1e-5)


@settings(deadline=None)
@given(st.integers(1, 700), st.integers(0, 699), st.sampled_from([0.0, 0.3, 1 - 2**-53]))
def test_a_token_of_probability_zero_is_never_chosen(width: int, place: int, u: float) -> None:
    logits = torch.full((1, width), -torch.inf)
    logits[0, place % width] = 5.0
    ids, logprobs = choose_wide(logits, np.array([u]))
    assert ids[0] == place % width and logprobs[0] == pytest.approx(0.0, abs=1e-6)


def test_logits_that_are_not_finite_are_refused() -> None:
    for bad in (float("nan"), float("inf")):
        logits = torch.zeros(2, 300)
        logits[1, 7] = bad
        with pytest.raises(EngineFault, match="not finite"):
            choose_wide(logits, np.array([0.5, 0.5]))


def test_a_common_beginning_is_read_once_and_changes_nothing() -> None:
    """Four prompts of 43 tokens that differ in the last: the first is read, three copy 42. A fifth of 40 tokens copies 39:
    one must be read. A sixth shares 36 with them and copies 36. Copied: 3 * 42 + 39 + 36 = 201.
    """
    prompts = [[*SYSTEM, 1, 2, agent] for agent in range(4)] + [SYSTEM, [*SYSTEM[:36], 3, 3, 3, 3]]
    engine = ChatEngine(MODEL, [STOP])
    requests = [request(prompt, agent, seed=agent) for agent, prompt in enumerate(prompts)]
    for r, sample in zip(requests, engine.sample(requests), strict=True):
        assert sample.logprobs == pytest.approx(expected_logprobs(MODEL, list(r.new_ids), sample), abs=1e-4)
    assert engine.copied_tokens == 201 and engine.prompt_tokens == 4 * 43 + 40 + 40
    (later,) = engine.sample([request([5], agent=3, new=False)])  # a copied context grows as any other
    assert len(later.ids) >= 1


def test_a_beginning_outlives_its_agent_and_ends_with_the_weights() -> None:
    engine = ChatEngine(MODEL, [STOP])
    engine.sample([request([*SYSTEM, 1], 0)])
    engine.release([(0, 0)])
    (sample,) = engine.sample([request([*SYSTEM, 2], 1)])
    assert engine.copied_tokens == 40
    assert sample.logprobs == pytest.approx(expected_logprobs(MODEL, [*SYSTEM, 2], sample), abs=1e-4)
    engine.release([(0, 1)])
    engine.sync(dict(MODEL.named_parameters()), 1)
    engine.sample([request([*SYSTEM, 2], 1)])
    assert engine.copied_tokens == 40


def test_who_waits_for_a_beginning_goes_on_when_its_reader_is_aborted() -> None:
    """Eight tokens a step: the first agent has read 8 of 41 when it is aborted; the second then reads all itself."""
    engine = ChatEngine(MODEL, [STOP], step_tokens=8)
    for agent in range(3):
        engine.begin(request([*SYSTEM, agent], agent))
    assert engine.step() == []
    assert [key for key, _ in engine.abort([(0, 0)])] == [(0, 0)]
    finished = run(engine)
    for agent in (1, 2):
        sample = finished[0, agent]
        assert sample.logprobs == pytest.approx(expected_logprobs(MODEL, [*SYSTEM, agent], sample), abs=1e-4)
    assert engine.copied_tokens == 40  # the third's
    (sample,) = engine.sample([request([4], agent=0, new=False)])
    assert sample.logprobs == pytest.approx(expected_logprobs(MODEL, [*SYSTEM, 0, 4], sample), abs=1e-4)


def test_no_more_beginnings_are_kept_than_allowed() -> None:
    """Seventeen beginnings: the first is given up, so its slot is free; a prompt with it is read anew."""
    engine = ChatEngine(MODEL, [STOP])
    for agent in range(MAX_PREFIXES + 1):
        engine.sample([request([agent, *SYSTEM], agent, budget=1)])
        engine.release([(0, agent)])
    assert len(engine._memory.rows) == MAX_PREFIXES
    engine.sample([request([0, *SYSTEM], 50)])
    engine.sample([request([1, *SYSTEM], 51)])
    assert engine.copied_tokens == 0  # keeping the first again gave up the second
