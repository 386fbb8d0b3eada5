"""The doctor on the machine: cores, memory, disk, GPU, ports, folders. Facts in, a Check out."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.doctor_report import DEMO, LLM, NODE, TARGETS, VLLM, Check, ok, problem, warning

GIB = 2**30
# Memory that a target wants, GiB. Demo: 2.1 were measured (proportional set size of all processes of `flows.train`). LLM:
# float32 weights, gradients and two moments of 135M parameters (2.0), a copy to sample with (0.5), activations and logits of
# a micro-batch (1.5), the tools (1.5), rounded up. vLLM: instead of the copy an engine (2.5) and its cache (1).
MEMORY_GIB = {DEMO: 3.0, LLM: 6.0, VLLM: 9.0}
# Free disk that a target wants, GiB. Demo: 0.12 were measured after 70 iterations. LLM: the model (0.55), the base, and 1.6
# for each checkpoint with its moments, as many as a run keeps. vLLM: besides that an environment of its own (3).
DISK_GIB = {DEMO: 1.0, LLM: 12.0, VLLM: 15.0}
SHM_BYTES = 256 * 2**20  # Ray's object store, tasks/workers.py
PORTS = {4200: "prefect server start", 5000: "mlflow ui", 6379: "ray start --head", 8000: "vllm serve", 8265: "the Ray dashboard"}
ACTIONS = {4200: "prefect server start --port …", 5000: "mlflow ui --port …", 6379: "ray start --head --port …",
           8000: "vllm serve --port …", 8265: "ray start --dashboard-port …"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Accelerator:
    """What torch and the driver say about GPUs; memory in GiB. `driver` is empty where nvidia-smi finds none."""

    torch: str
    cuda: str = ""  # the CUDA version that torch was built for; empty: a CPU build
    gpus: tuple[tuple[str, float], ...] = ()
    driver: str = ""


# -- facts ---------------------------------------------------------------------------------------------------------------


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_gib() -> float:
    """Memory that this process may have: the machine's, or the container's where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            words = Path(name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        if words.isdigit():
            total = min(total, int(words))
    return total / GIB


def free_gib(path: Path) -> float:
    return shutil.disk_usage(path).free / GIB


def shared_bytes() -> int | None:
    """Free shared memory; None where the system has no such folder."""
    return shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else None


def accelerator() -> Accelerator:
    """Asks torch and nvidia-smi; a GPU's memory is queried, nothing is allocated on it."""
    import torch

    gpus: list[tuple[str, float]] = []
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(i)
            gpus.append((properties.name, properties.total_memory / GIB))
    return Accelerator(torch.__version__, torch.version.cuda or "", tuple(gpus), _driver())


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout.strip().splitlines() or [""])[0] if done.returncode == 0 else ""


def busy_ports() -> set[int]:
    """Those of PORTS on which something listens on this machine."""
    busy = set()
    for port in PORTS:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                busy.add(port)
    return busy


def loopback_error() -> str:
    """Why no local server can be reached; empty when one can: a connection from here to here."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5.0).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def write_error(folder: Path) -> str:
    """Why no file can be made in a folder, or in the nearest one above it that exists; empty when one can. Leaves nothing."""
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"x" * 4096)
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return ""


# -- checks --------------------------------------------------------------------------------------------------------------


def check_cores(count: int) -> Check:
    if count < 2:
        return warning("cores", f"{count}", "everything runs, about half as fast as the times in the README (2 cores)")
    return ok("cores", f"{count}")


def check_memory(gib: float) -> Check:
    return _sized("memory", gib, MEMORY_GIB, f"{gib:.1f} GiB", "run on a larger machine, or raise the container's limit")


def check_disk(gib: float) -> Check:
    return _sized("disk", gib, DISK_GIB, f"{gib:.1f} GiB free", "free some; runs/ and old environments are the largest")


def _sized(name: str, gib: float, needs: Mapping[str, float], found: str, todo: str) -> Check:
    short = [target for target, need in needs.items() if gib < need]
    if not short:
        return ok(name, found)
    words = f"{found}; {', '.join(f'{target} wants {needs[target]:g}' for target in short)}"
    return (problem if DEMO in short else warning)(name, words, todo, short)


def check_shared_memory(free: int | None) -> Check:
    if free is None or free >= SHM_BYTES:
        return ok("shared memory", "none, not needed" if free is None else f"{free / GIB:.1f} GiB free in /dev/shm")
    found = f"{free / 2**20:.0f} MiB free in /dev/shm, Ray wants {SHM_BYTES / 2**20:.0f}; it falls back to the disk"
    return warning("shared memory", found, "start the container with --shm-size=1g")


def check_gpu(facts: Accelerator, wanted: int) -> Check:
    """`wanted` GPUs are what the one-node profile uses."""
    if facts.gpus:
        names = sorted({f"{name} ({gib:.0f} GiB)" for name, gib in facts.gpus})
        found = f"{len(facts.gpus)} x {', '.join(names)}, driver {facts.driver or 'unknown'}, torch {facts.torch}"
        if len(facts.gpus) < wanted:
            todo = f"in a copy of {NODE} lower rollouts.workers: workers x engine.tensor_parallel + 1 GPUs are used"
            return ok("gpu", found, (NODE,), todo)
        return ok("gpu", found)
    if facts.driver and not facts.cuda:
        todo = "take the ordinary build: `python -m pip install --force-reinstall torch` (the version of constraints.txt)"
        return warning("gpu", f"driver {facts.driver}, but torch {facts.torch} is a CPU build", todo, (NODE,))
    if facts.driver:
        todo = "the driver is older than CUDA wants, or CUDA_VISIBLE_DEVICES hides the GPUs: update the one, unset the other"
        return warning("gpu", f"driver {facts.driver}, but torch {facts.torch} (CUDA {facts.cuda}) sees no GPU", todo, (NODE,))
    return ok("gpu", f"none, torch {facts.torch}", (NODE,))


def check_ports(busy: Sequence[int]) -> Check:
    """Ports of servers that a user starts; the pipeline itself takes free ones."""
    if busy:
        found = "; ".join(f"{port} is in use ({PORTS[port]} wants it)" for port in sorted(busy))
        todo = f"right if that server is yours; else `{'`, `'.join(ACTIONS[port] for port in sorted(busy))}`"
        return warning("ports", found, todo)
    return ok("ports", f"free: {', '.join(map(str, PORTS))}")


def check_loopback(error: str) -> Check:
    """Prefect's embedded server and Ray's processes talk over 127.0.0.1."""
    if error:
        todo = "let processes of this machine talk over 127.0.0.1 (firewall, sandbox)"
        return problem("loopback", f"no local server can be reached: {error}", todo, TARGETS)
    return ok("loopback", "local servers can be reached")


def check_folders(errors: Mapping[str, str]) -> Check:
    """Everything that the pipeline writes, by name."""
    bad = [f"{name}: {error}" for name, error in errors.items() if error]
    if bad:
        todo = "make them writable for this user (`chown`, `chmod`, or a disk that is not mounted read-only or full)"
        return problem("write access", "; ".join(bad), todo, TARGETS)
    return ok("write access", ", ".join(errors))
