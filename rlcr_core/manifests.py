"""Digests, atomic writes and manifests: a stage is done when its manifest lies on disk, and not a moment earlier.

A file is written to a temporary name in its own folder, synced, renamed, and the folder is synced: whoever reads the
final name sees the old bytes or the new ones, never a part. One process writes a given path at a time; a temporary
file that a killed process left behind is removed by the next write of the same path.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlcr_core.errors import DataError, StoreError

_CHUNK = 1 << 20


def digest_bytes(data: bytes) -> str:
    """SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: str | Path) -> str:
    """SHA-256 of a file, in hexadecimal. Raises StoreError when it cannot be read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {reason(error)}. Restore it or repeat the stage that made it.") from error
    return digest.hexdigest()


def digest_files(directory: str | Path) -> dict[str, str]:
    """SHA-256 of every file below a folder, by POSIX path relative to it, sorted; temporary files are left out."""
    root = Path(directory)
    if not root.is_dir():
        raise StoreError(f"Cannot read the folder {root}: it does not exist. Repeat the stage that made it.")
    found = sorted(path for path in root.rglob("*") if path.is_file() and not path.name.endswith(".tmp"))
    return {path.relative_to(root).as_posix(): digest_file(path) for path in found}


def digest_tree(directory: str | Path) -> str:
    """One SHA-256 for the names and contents of all files below a folder. Raises StoreError."""
    lines = (f"{digest}  {name}\n" for name, digest in digest_files(directory).items())
    return digest_bytes("".join(lines).encode())


def reason(error: OSError) -> str:
    """The operating system's words for an error."""
    return error.strerror or str(error)


def write_refused(path: Path, error: OSError) -> StoreError:
    """The error of a write that did not happen: what is intact, how much space is left, what to do."""
    try:
        free = f" ({shutil.disk_usage(path.parent).free / 2**20:.0f} MiB free)"
    except OSError:
        free = ""
    return StoreError(
        f"Cannot write {path}: {reason(error)}{free}. Nothing is lost: what was there before is intact and the "
        "temporary copy is removed. Free disk space or make the folder writable, then run the same command again; it "
        "goes on after the last finished stage."
    )


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.tmp")


def _remove_leftovers(path: Path) -> None:
    """Remove what killed processes left of earlier attempts to write this path."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError):
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def atomic_write(path: str | Path, data: bytes) -> None:
    """Replace a file's content in one step, folders made as needed.

    Raises StoreError when the system refuses (a full disk, no permission): the old file is intact, no temporary stays.
    """
    path = Path(path)
    temporary = _temporary(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        raise write_refused(path, error) from error
    finally:
        _remove_leftovers(path)


@contextmanager
def replaced_directory(path: str | Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; when the block ends without error it becomes `path`, whole and synced.

    An existing folder is moved aside for the moment between two renames; `restore_directory` brings it back after a
    kill in that moment. Raises StoreError for every OSError, the old folder intact.
    """
    path = Path(path)
    temporary = _temporary(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        restore_directory(path)
        temporary.mkdir()
        yield temporary
        for entry in [*temporary.rglob("*"), temporary]:
            _sync(entry)
        _swap(temporary, path)
    except OSError as error:
        raise write_refused(path, error) from error
    finally:
        _remove_leftovers(path)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _swap(temporary: Path, path: Path) -> None:
    aside = _aside(path)
    if path.exists():
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(path, aside)
    try:
        os.replace(temporary, path)
    except OSError:
        restore_directory(path)
        raise
    _sync(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


def restore_directory(path: str | Path) -> None:
    """Bring back the folder that a process killed between the two renames of a replacement had moved aside."""
    path = Path(path)
    aside = _aside(path)
    if aside.is_dir() and not path.exists():
        os.replace(aside, path)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a finished stage read and wrote: digests of its inputs by name, of its files by path relative to the
    manifest's folder, and plain JSON data for the stages after it."""

    stage: str
    inputs: Mapping[str, str]
    files: Mapping[str, str]
    data: Mapping[str, Any] = field(default_factory=dict)


def canonical_json(value: Any, what: str) -> bytes:
    """JSON bytes that are equal for equal values: sorted keys, no NaN. Raises DataError naming `what`."""
    try:
        return (json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{what} is not plain, finite JSON: {error}. Give it only strings, finite numbers, lists and mappings with "
            "string keys."
        ) from error


def write_manifest(directory: str | Path, manifest: Manifest) -> Path:
    """Write `directory`/`<stage>.json` atomically, as the last act of a stage. Raises DataError and StoreError."""
    path = Path(directory) / f"{manifest.stage}.json"
    content = {
        "stage": manifest.stage,
        "inputs": dict(manifest.inputs),
        "files": dict(manifest.files),
        "data": dict(manifest.data),
    }
    atomic_write(path, canonical_json(content, f"The manifest {path}"))
    return path


def _parse(raw: bytes) -> Manifest | None:
    try:
        content = json.loads(raw)
        return Manifest(content["stage"], dict(content["inputs"]), dict(content["files"]), dict(content["data"]))
    except (ValueError, KeyError, TypeError):
        return None


def read_manifest(directory: str | Path, stage: str, inputs: Mapping[str, str]) -> Manifest | None:
    """The manifest of a stage that is done for these inputs, else None: the stage has to run (again).

    None when the manifest is absent or unreadable as JSON, names other inputs, or when any of its files is missing or
    has another digest. Raises StoreError when the system refuses to read.
    """
    path = Path(directory) / f"{stage}.json"
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {reason(error)}. Make it readable or delete it.") from error
    manifest = _parse(raw)
    if manifest is None or manifest.stage != stage or manifest.inputs != dict(inputs):
        return None
    for name, digest in manifest.files.items():
        file = Path(directory) / name
        if not file.is_file() or digest_file(file) != digest:
            return None
    return manifest
