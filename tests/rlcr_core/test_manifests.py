"""Atomic writes, digests and manifests: old bytes or new ones, never a part; done means done for these inputs."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from rlcr_core.errors import DataError, StoreError
from rlcr_core.store import Manifest, atomic_write, digest_file, digest_tree, read_manifest, write_manifest


def test_an_atomic_write_replaces_the_content_and_clears_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / ".a.json.99999-1.tmp").write_bytes(b"half")
    atomic_write(tmp_path / "a.json", b"old")
    atomic_write(tmp_path / "a.json", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_bytes() == b"new"


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_old_manifest_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    old = Manifest("rollouts", {"weights": "aa"}, {}, {"n": 1})
    write_manifest(tmp_path, old)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(StoreError, match=r"No space left on device.*Free disk.*run the same command") as caught:
        write_manifest(tmp_path, Manifest("rollouts", {"weights": "bb"}, {}, {"n": 2}))
    monkeypatch.undo()
    assert str(tmp_path / "rollouts.json") in str(caught.value) and "\n" not in str(caught.value)
    assert read_manifest(tmp_path, "rollouts", {"weights": "aa"}) == old
    assert [path.name for path in tmp_path.iterdir()] == ["rollouts.json"]


def test_a_write_that_the_system_takes_in_pieces_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    atomic_write(tmp_path / "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_a_path_below_a_file_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="Cannot write"):
        atomic_write(tmp_path / "file" / "a.json", b"x")


def test_a_manifest_is_valid_only_for_its_inputs_and_unchanged_files(tmp_path: Path) -> None:
    (tmp_path / "tasks.json").write_bytes(b"{}")
    files = {"tasks.json": digest_file(tmp_path / "tasks.json")}
    manifest = Manifest("plan", {"params": "aa"}, files, {"limit_s": 16.0})
    assert read_manifest(tmp_path, "plan", {"params": "aa"}) is None  # absent
    path = write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path, "plan", {"params": "aa"}) == manifest
    assert read_manifest(tmp_path, "plan", {"params": "bb"}) is None  # other inputs
    (tmp_path / "tasks.json").write_bytes(b"{ }")
    assert read_manifest(tmp_path, "plan", {"params": "aa"}) is None  # another content
    (tmp_path / "tasks.json").unlink()
    assert read_manifest(tmp_path, "plan", {"params": "aa"}) is None  # missing
    (tmp_path / "tasks.json").write_bytes(b"{}")
    assert read_manifest(tmp_path, "plan", {"params": "aa"}) == manifest  # restored
    path.write_bytes(path.read_bytes()[:20])
    assert read_manifest(tmp_path, "plan", {"params": "aa"}) is None  # cut short


def test_manifest_bytes_do_not_depend_on_the_order_of_keys(tmp_path: Path) -> None:
    write_manifest(tmp_path / "a", Manifest("s", {"x": "1", "y": "2"}, {}, {"p": 1, "q": [2.5]}))
    write_manifest(tmp_path / "b", Manifest("s", {"y": "2", "x": "1"}, {}, {"q": [2.5], "p": 1}))
    first = (tmp_path / "a" / "s.json").read_bytes()
    assert first == (tmp_path / "b" / "s.json").read_bytes()
    assert json.loads(first)["inputs"] == {"x": "1", "y": "2"}


def test_a_manifest_with_a_nan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"s\.json is not plain, finite JSON"):
        write_manifest(tmp_path, Manifest("s", {}, {}, {"loss": float("nan")}))
    assert list(tmp_path.iterdir()) == []


def test_the_digest_of_a_tree_sees_names_contents_and_places(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "x").write_bytes(b"1")
    (tmp_path / "b" / "x").write_bytes(b"1")
    (tmp_path / "c" / "y").write_bytes(b"1")
    same, other_name = digest_tree(tmp_path / "b"), digest_tree(tmp_path / "c")
    assert digest_tree(tmp_path / "a") == same != other_name
    (tmp_path / "a" / "x").write_bytes(b"2")
    assert digest_tree(tmp_path / "a") != same
    with pytest.raises(StoreError, match="does not exist"):
        digest_tree(tmp_path / "d")


def test_the_digest_of_a_file_is_its_sha256(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")  # the test vector of FIPS 180-2
    assert digest_file(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
