"""Prefect's embedded server must not outlive a process that was killed: a tiny watcher ends it.

Prefect stops the server at a normal exit. After SIGKILL nobody does, so a shell waits on a pipe that only this process
holds open; when it closes, the shell ends the server by its process id.
"""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress

NICER = 10


def guard_server() -> int | None:
    """Watch over the embedded server of this process; returns its process id, None where another server is used."""
    from prefect.server.api.server import SubprocessASGIServer

    for server in SubprocessASGIServer._instances.values():
        process = server.server_process
        if process is not None and process.poll() is None:
            watcher = subprocess.Popen(
                ["sh", "-c", f"cat >/dev/null; kill {process.pid} 2>/dev/null"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            _watchers.append(watcher)  # the pipe stays open as long as this process lives
            _give_way(process.pid)
            return process.pid
    return None


def _give_way(pid: int) -> None:
    """Let training go before the server, which writes down events and needs a fifth of a core for it."""
    with suppress(OSError):  # it has ended, or its priority may not be changed
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + NICER)


_watchers: list[subprocess.Popen[bytes]] = []
