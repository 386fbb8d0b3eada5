"""Sampling speed of chat agents: `python -m benchmarks.chat_sampling [MODEL_FOLDER] --dtype bfloat16`.

The same game for each engine: 16 agents take 6 turns side by side; before each turn about 60 new ids join an agent's
transcript, and 24 ids are sampled with logprobs. Compared are

  engine    rlcr_core.engines.chat, caches kept between turns
  generate  transformers' generate(), batched over the agents, turn by turn on the full transcript, padded on the left
  vllm      vLLM on this machine with its prefix cache on, where vLLM can be imported

The engines take turns for `--repeats` rounds, so that a machine with other work treats them alike; printed are the
sampled tokens/s of the best and of the median round, the ratios of the best, and tokens per CPU second, which other work
touches less. Without a folder the model is a
randomly initialised one of SmolLM2-135M's size. Ids are random: no tokenizer takes part.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from rlcr_core.engines.chat import ChatEngine
from rlcr_core.types import SampleRequest

AGENTS, TURNS, PROMPT, SAMPLED = 16, 6, 60, 24
Transcripts = list[list[int]]
Turn = Callable[[Transcripts, Transcripts, int], Transcripts]  # (transcripts with the new ids, new ids, turn) -> sampled


def random_model(folder: Path) -> None:
    """SmolLM2-135M's sizes with random weights."""
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e5}, bos_token_id=1, eos_token_id=2, pad_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)


def play(turn: Turn, vocabulary: int, turns: int) -> tuple[float, float]:
    """One game; sampled tokens per second spent in `turn`, and per CPU second of this process."""
    rng = np.random.default_rng(0)
    transcripts: Transcripts = [[] for _ in range(AGENTS)]
    n, seconds, cpu_s = 0, 0.0, 0.0
    for t in range(turns):
        new = [rng.integers(3, vocabulary, int(rng.integers(PROMPT - 10, PROMPT + 11))).tolist() for _ in range(AGENTS)]
        transcripts = [old + ids for old, ids in zip(transcripts, new, strict=True)]
        started, cpu_started = time.perf_counter(), time.process_time()
        sampled = turn(transcripts, new, t)
        seconds, cpu_s = seconds + time.perf_counter() - started, cpu_s + time.process_time() - cpu_started
        transcripts = [old + ids for old, ids in zip(transcripts, sampled, strict=True)]
        n += sum(map(len, sampled))
    return n / seconds, n / cpu_s


def with_engine(model: Any, dtype: torch.dtype) -> Turn:
    engine = ChatEngine(model, [], dtype=dtype, max_running=AGENTS)

    def turn(_: Transcripts, new: Transcripts, t: int) -> Transcripts:
        requests = [SampleRequest((0, a), ids, t == 0, 1000 * t + a, SAMPLED) for a, ids in enumerate(new)]
        return [sample.ids for sample in engine.sample(requests)]

    return turn


def with_generate(model: Any, dtype: torch.dtype) -> Turn:
    model = model.to(dtype)

    def turn(transcripts: Transcripts, _: Transcripts, t: int) -> Transcripts:
        width = max(map(len, transcripts))
        ids = torch.tensor([[2] * (width - len(row)) + row for row in transcripts])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in transcripts])
        torch.manual_seed(t)
        with torch.inference_mode():
            out = model.generate(
                input_ids=ids, attention_mask=mask, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, pad_token_id=2,
                min_new_tokens=SAMPLED, max_new_tokens=SAMPLED, output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
        new_ids = out.sequences[:, width:]
        for step, logits in enumerate(out.logits):  # the logprobs of the sampled tokens, as the other two give them
            logits.float().log_softmax(-1).gather(-1, new_ids[:, step : step + 1])
        return [row.tolist() for row in new_ids]

    return turn


def with_vllm(folder: Path, dtype: str) -> Turn:
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt

    llm = LLM(
        str(folder), dtype=dtype, skip_tokenizer_init=True, enforce_eager=True, enable_prefix_caching=True, max_num_seqs=AGENTS,
        max_model_len=2048, kv_cache_memory_bytes=1 << 30, logprobs_mode="processed_logprobs", generation_config="vllm", seed=0,
    )  # fmt: skip
    games = iter(range(1000))
    salt = ""

    def turn(transcripts: Transcripts, _: Transcripts, t: int) -> Transcripts:
        nonlocal salt
        if t == 0:
            salt = str(next(games))  # a new game must not find the last one's prefixes
        parameters = SamplingParams(
            temperature=1.0, max_tokens=SAMPLED, min_tokens=0, ignore_eos=True, logprobs=0, detokenize=False, seed=None
        )
        prompts = [TokensPrompt(prompt_token_ids=row, cache_salt=salt) for row in transcripts]
        return [list(output.outputs[0].token_ids) for output in llm.generate(prompts, parameters, use_tqdm=False)]

    return turn


def measure(folder: Path, dtype: str, repeats: int, turns: int, names: list[str]) -> dict[str, list[tuple[float, float]]]:
    """What `play` gives for each engine and round."""
    kind: torch.dtype = getattr(torch, dtype)

    def loaded() -> Any:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)

    vocabulary = loaded().config.vocab_size
    makers: dict[str, Callable[[], Turn]] = {
        "engine": lambda: with_engine(loaded(), kind),
        "generate": lambda: with_generate(loaded(), kind),
        "vllm": lambda: with_vllm(folder, dtype),
    }
    engines = {name: makers[name]() for name in names}
    for turn in engines.values():
        play(turn, vocabulary, turns=1)
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(repeats):
        for name, turn in engines.items():
            rates[name].append(play(turn, vocabulary, turns))
            print(f"  {name:10}{rates[name][-1][0]:8.1f} tokens/s", flush=True)
    return rates


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", type=Path, nargs="?", help="a Hugging Face folder; none: random weights")
    arguments.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16")
    arguments.add_argument("--threads", type=int, default=os.cpu_count(), help="of the first two; vLLM binds its own")
    arguments.add_argument("--turns", type=int, default=TURNS)
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--only", nargs="+", choices=["engine", "generate", "vllm"])
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    names = options.only or ["engine", "generate", *(["vllm"] if importlib.util.find_spec("vllm") else [])]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.model or Path(temporary)
        if options.model is None:
            random_model(folder)
        rates = measure(folder, options.dtype, options.repeats, options.turns, names)
    print(f"{AGENTS} agents, {options.turns} turns, about {PROMPT} new and {SAMPLED} sampled tokens each, {options.dtype}")
    best = {name: max(wall for wall, _ in values) for name, values in rates.items()}
    for name, values in rates.items():
        median = statistics.median(wall for wall, _ in values)
        line = f"  {name:10}best {best[name]:8.1f}  median {median:8.1f} tokens/s"
        if name != "vllm":  # which computes in another process
            line += f"  {max(cpu for _, cpu in values):8.1f} per CPU second"
        print(line + (f"  engine / {name} = {best['engine'] / best[name]:.2f}" if name != "engine" and "engine" in rates else ""))


if __name__ == "__main__":
    main()
