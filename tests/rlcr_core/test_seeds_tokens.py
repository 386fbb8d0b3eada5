"""Seeds from keys, uniform numbers without batch or order, and the word tokenizer's round trip, also through transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.errors import ConfigError, DataError
from rlcr_core.seeds import derive, mix, rollout_seed, turn_seed, uniforms
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import RolloutKey


def test_derive_tells_parts_and_types_apart() -> None:
    keys = [("a", 1), ("a", "1"), ("a1",), ("a", 11), ("a", 1, 1), (1, "a")]
    assert len({derive(*key) for key in keys}) == len(keys)
    # The first 8 bytes of SHA-256("sx"), halved: printf 'sx' | sha256sum
    import hashlib

    assert derive("x") == int(hashlib.sha256(b"sx").hexdigest()[:16], 16) // 2


def test_mix_is_splitmix64() -> None:
    # Published first output of SplitMix64 seeded with 0: finaliser of the golden-ratio increment
    assert mix(0x9E3779B97F4A7C15) == 0xE220A8397B1DCDAF


def test_every_part_of_the_key_changes_the_seed() -> None:
    key = RolloutKey("run", 1, 2, 3)
    others = [key._replace(run="r"), key._replace(iteration=2), key._replace(group=3), key._replace(rollout=4)]
    assert len({rollout_seed(k) for k in [key, *others]}) == 5
    seeds = {turn_seed(rollout_seed(key), agent, turn) for agent in range(40) for turn in range(40)}
    assert len(seeds) == 1600


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20), st.integers(0, 100))
def test_uniforms_do_not_depend_on_the_batch(seeds: list[int], position: int) -> None:
    together = uniforms(np.array(seeds, np.uint64), position)
    assert [uniforms(np.array([s], np.uint64), position)[0] for s in seeds] == together.tolist()
    assert ((together >= 0) & (together < 1)).all()


def test_uniforms_are_uniform() -> None:
    values = uniforms(np.arange(100_000, dtype=np.uint64), 3)
    # the standard error of the mean of 1e5 uniforms is 0.0009, that of a tenth's share 0.0009
    assert values.mean() == pytest.approx(0.5, abs=0.005)
    assert np.histogram(values, 10, (0, 1))[0] / 1e5 == pytest.approx(np.full(10, 0.1), abs=0.005)


@given(st.lists(st.sampled_from(["a", "b", "c"]), max_size=12))
def test_round_trip(words: list[str]) -> None:
    tokenizer = WordTokenizer(["a", "b", "c"])
    ids = tokenizer.encode(" ".join(words))
    assert ids == [2 + "abc".index(w) for w in words]
    assert tokenizer.decode(ids) == " ".join(words)


def test_saved_tokenizer_is_read_by_us_and_by_transformers(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = WordTokenizer(["work", "p07", "i03"])
    tokenizer.save(tmp_path)
    assert WordTokenizer.load(tmp_path).words == tokenizer.words
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    text = "work p07 what i03"
    assert theirs(text)["input_ids"] == tokenizer.encode(text) == [2, 3, 1, 4]
    assert theirs.decode([2, 3, 4]) == "work p07 i03"


def test_bad_vocabularies_and_files_are_refused(tmp_path: Path) -> None:
    for words in (["a", "a"], ["a b"], [""]):
        with pytest.raises(ConfigError, match="distinct words"):
            WordTokenizer(words)
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        WordTokenizer.load(tmp_path)
    WordTokenizer(["a"]).save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(DataError, match="publish the policy again"):
        WordTokenizer.load(tmp_path)
