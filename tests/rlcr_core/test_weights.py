"""Weights on disk: what was written is what is read, or the reader hears which file is wrong and what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from rlcr_core.errors import DataError, StoreError, WeightError
from rlcr_core.manifests import digest_files, replaced_directory
from rlcr_core.tokens import WordTokenizer
from rlcr_core.weights import Published, load_checkpoint, load_weights, save_checkpoint

TOKENIZER = WordTokenizer(["work", "wait"])
OPTIMIZER = {"exp_avg.0": torch.tensor([[1.0, -2.0], [0.5, 0.25]]).T, "step": torch.tensor(3.0)}
META = {"iteration": 4, "params": "ab12", "nested": {"lr": 0.001, "list": [1, 2]}}


def tiny_model(seed: int = 0) -> PreTrainedModel:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(TOKENIZER), hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, max_position_embeddings=16, tie_word_embeddings=False,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def only(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def publish(model: PreTrainedModel, tokenizer: WordTokenizer, directory: Path, version: int) -> Published:
    path = directory / f"{version:06d}"
    save_checkpoint(path, model, tokenizer, {}, {})
    return Published.of(path, version)


def test_published_weights_are_the_models_and_carry_their_version(tmp_path: Path) -> None:
    model = tiny_model()
    published = publish(model, TOKENIZER, tmp_path, 7)
    assert (published.path, published.version) == (tmp_path / "000007", 7)
    assert same(load_weights(published.path, published.digest), dict(model.state_dict()))
    assert same(load_weights(published.path / "model.safetensors", published.digest), dict(model.state_dict()))
    assert only(tmp_path) == ["000007"]


def test_equal_weights_give_equal_bytes_and_other_weights_do_not(tmp_path: Path) -> None:
    first = publish(tiny_model(0), TOKENIZER, tmp_path / "a", 1)
    again = publish(tiny_model(0), TOKENIZER, tmp_path / "a", 1)
    other = publish(tiny_model(1), TOKENIZER, tmp_path / "b", 1)
    assert first == again
    assert first.digest != other.digest


def test_weights_with_another_digest_are_refused(tmp_path: Path) -> None:
    old, new = publish(tiny_model(0), TOKENIZER, tmp_path, 1), publish(tiny_model(1), TOKENIZER, tmp_path, 2)
    with pytest.raises(WeightError, match=f"expected SHA-256 {old.digest}, got {new.digest}"):
        load_weights(new.path, old.digest)
    with pytest.raises(WeightError, match=r"000003.*expected SHA-256 .*no such file"):
        load_weights(tmp_path / "000003", old.digest)


def test_a_flipped_bit_is_found(tmp_path: Path) -> None:
    published = publish(tiny_model(), TOKENIZER, tmp_path, 1)
    file = published.path / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(WeightError, match=r"model\.safetensors is not the file that was written"):
        load_weights(published.path, published.digest)


def test_a_file_that_is_no_safetensors_is_refused_although_its_digest_fits(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"not tensors")
    with pytest.raises(WeightError, match="not a readable safetensors file"):
        load_weights(file, digest_files(tmp_path)["x"])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_non_finite_weights_are_never_published_and_the_tensor_is_named(tmp_path: Path, value: float) -> None:
    model = tiny_model()
    with torch.no_grad():
        model.get_parameter("model.norm.weight")[2] = value
    with pytest.raises(WeightError, match=r"NaN or infinite values in model\.norm\.weight \(1 of 12 tensors\)"):
        publish(model, TOKENIZER, tmp_path, 1)
    assert only(tmp_path) == []


def test_non_finite_weights_are_refused_by_the_reader_too(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"a": torch.ones(2), "b": torch.tensor([1.0, float("nan")])}, tmp_path / "model.safetensors")
    digest = digest_files(tmp_path)["model.safetensors"]
    with pytest.raises(WeightError, match=r"values in b \(1 of 2 tensors\)"):
        load_weights(tmp_path, digest)


def test_a_checkpoint_gives_back_model_optimiser_and_meta(tmp_path: Path) -> None:
    model = tiny_model()
    digest = save_checkpoint(tmp_path / "c", model, TOKENIZER, OPTIMIZER, META)
    loaded, optimizer_state, meta = load_checkpoint(tmp_path / "c", digest)
    ids = torch.tensor([[2, 3, 2]])
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert same(optimizer_state, OPTIMIZER)
    assert meta == META
    assert WordTokenizer.load(tmp_path / "c").encode("wait work") == [3, 2]


def test_the_same_checkpoint_twice_has_the_same_bytes(tmp_path: Path) -> None:
    digests = [save_checkpoint(tmp_path / name, tiny_model(), TOKENIZER, OPTIMIZER, META) for name in "ab"]
    assert digests[0] == digests[1]
    assert digest_files(tmp_path / "a") == digest_files(tmp_path / "b")


def test_every_changed_or_missing_file_of_a_checkpoint_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    digest = save_checkpoint(folder, tiny_model(), TOKENIZER, OPTIMIZER, META)
    for name in sorted(set(digest_files(folder)) - {"checkpoint.json"}):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(WeightError, match=rf"{name} is not the file.*expected SHA-256 \w+, got \w+.*dvc checkout"):
            load_checkpoint(folder)
        (folder / name).unlink()
        with pytest.raises(WeightError, match=rf"{name} is not the file.*no such file"):
            load_checkpoint(folder)
        (folder / name).write_bytes(content)
    with pytest.raises(WeightError, match=rf"checkpoint\.json is not the file.*{'0' * 64}"):
        load_checkpoint(folder, "0" * 64)
    assert load_checkpoint(folder, digest)[2] == META


@pytest.mark.parametrize("content", [None, b'{"files": {"model.safe', b"[]", b'{"files": {}, "meta": {}}'])
def test_a_checkpoint_without_a_usable_index_is_a_data_error(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "checkpoint.json").write_bytes(content)
    with pytest.raises(DataError, match=r"not a usable checkpoint.*run the same command again"):
        load_checkpoint(tmp_path)


def test_bad_optimiser_state_or_meta_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    digest = save_checkpoint(folder, tiny_model(), TOKENIZER, OPTIMIZER, META)
    with pytest.raises(WeightError, match=r"optimiser state .* in exp_avg\.0"):
        save_checkpoint(folder, tiny_model(1), TOKENIZER, {"exp_avg.0": torch.tensor([float("inf")])}, META)
    with pytest.raises(DataError, match="not plain, finite JSON"):
        save_checkpoint(folder, tiny_model(1), TOKENIZER, OPTIMIZER, {"loss": float("nan")})
    assert load_checkpoint(folder, digest)[2] == META
    assert only(tmp_path) == ["c"]


def test_a_checkpoint_replaces_the_one_before(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", tiny_model(0), TOKENIZER, OPTIMIZER, META)
    save_checkpoint(tmp_path / "c", tiny_model(1), TOKENIZER, OPTIMIZER, {"iteration": 5})
    model, _, meta = load_checkpoint(tmp_path / "c")
    assert meta == {"iteration": 5}
    assert same(dict(model.state_dict()), dict(tiny_model(1).state_dict()))
    assert only(tmp_path) == ["c"]


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "c"
    digest = save_checkpoint(folder, tiny_model(), TOKENIZER, OPTIMIZER, META)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left on device.*run the same command again"):
        save_checkpoint(folder, tiny_model(1), TOKENIZER, OPTIMIZER, META)
    monkeypatch.undo()
    assert load_checkpoint(folder, digest)[2] == META
    assert only(tmp_path) == ["c"]


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    digest = save_checkpoint(folder, tiny_model(), TOKENIZER, OPTIMIZER, META)
    os.replace(folder, tmp_path / ".c.old")  # the first rename of a replacement; then the process dies
    assert load_checkpoint(folder, digest)[2] == META


def test_a_failed_second_rename_brings_the_old_folder_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "old").write_bytes(b"1")
    replace, calls = os.replace, []

    def second_fails(source: Path, target: Path) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        replace(source, target)

    monkeypatch.setattr(os, "replace", second_fails)
    with pytest.raises(StoreError, match="Input/output error"), replaced_directory(folder) as temporary:
        (temporary / "new").write_bytes(b"2")
    assert (only(tmp_path), only(folder)) == (["c"], ["old"])
