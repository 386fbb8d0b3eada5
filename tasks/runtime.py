"""Environment variables of the tools, set in one place and before any of them is imported; what is already set wins."""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

LOCAL_HOSTS = "127.0.0.1,localhost"


def defaults(root: Path) -> dict[str, str]:
    """The variables and their values for a project in this folder."""
    return {
        # An older Prefect does not open a newer one's database, and its embedded server then dies without a word.
        "PREFECT_HOME": str(root / ".prefect" / version("prefect")),
        "PREFECT_SERVER_EPHEMERAL_ENABLED": "true",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "CRITICAL",  # its recorder complains when the embedded server ends with the flow
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",  # flows raise what goes wrong, and flows/cli.py says it once
        "PREFECT_LOGGING_COLORS": "false",
        "DO_NOT_TRACK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # actors without a GPU keep CUDA_VISIBLE_DEVICES as it is
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "GX_ANALYTICS_ENABLED": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",  # update.threads and rollouts.workers use the cores; see rlcr_core/update.py
        "MPLBACKEND": "agg",
    }


def prepare(root: Path | None = None) -> None:
    """Set what is not set yet, for the project in `root` (default: the working folder)."""
    for name, value in defaults(root or Path.cwd()).items():
        os.environ.setdefault(name, value)
    with suppress(OSError):  # Prefect makes its folder, not the one around it, and then says what is wrong
        Path(os.environ["PREFECT_HOME"]).expanduser().mkdir(parents=True, exist_ok=True)
    for name in ("NO_PROXY", "no_proxy"):
        present = os.environ.get(name, "")
        if LOCAL_HOSTS not in present:
            os.environ[name] = ",".join(filter(None, (present, LOCAL_HOSTS)))


def keep_memory() -> bool:
    """Tell glibc to keep freed memory, in one arena; returns whether it listened (other systems have no such call).

    Otherwise tensors of a few MiB are mapped, filled with zeros and unmapped again, thousands of page faults a call; what
    that costs depends on what else the machine does (benchmarks/memory.py).
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    # The numbers are those of malloc.h: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD, M_ARENA_MAX.
    return all([mallopt(-3, 1 << 30), mallopt(-1, 2**31 - 1), mallopt(-2, 64 << 20), mallopt(-8, 1)])


GC_THRESHOLD = 500_000  # new containers before the collector looks: an iteration's rollouts are 100,000 that stay alive


def settle() -> None:
    """Take what is alive now, libraries mostly, out of the garbage collector's sight: each full pass over them takes a second.

    From here on it looks rarely; with Python's own 700 it took two thirds of the time of building rollouts from tables.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 10, 10)
