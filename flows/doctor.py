"""Check this machine: what it can run, and what to do about the rest. `--json` for programs.

One line a check: ok, warning or problem, what was found, and after the arrow what to do. Nothing is changed, downloaded or
started. The exit code is 1 only when something stops `make demo`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from flows import cli
from rlcr_core.errors import GateError
from tasks.doctor import diagnose
from tasks.doctor_report import DEMO, as_json, as_text, stopped
from tasks.paths import Project


def examine(options: argparse.Namespace) -> None:
    """Print every finding. Raises GateError when something stops the demo."""
    checks = diagnose(Project.here(), options.params)
    print(as_json(checks) if options.json else as_text(checks))
    names = stopped(checks)[DEMO]
    if names:
        raise GateError(f"`{DEMO}` cannot run here: {', '.join(names)}. What to do is said in the table's lines of these names.")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = cli.parser(__doc__)
    arguments.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return cli.run(examine, arguments, argv)


if __name__ == "__main__":
    sys.exit(main())
