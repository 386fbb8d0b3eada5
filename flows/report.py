"""Write the report: artifacts/report/index.html with its pictures (PNG) and their data (CSV).

Needs what `dvc repro evaluate` leaves under artifacts/; says which stage to run where something is missing. The report
is also added to the MLflow run of the evaluation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from flows import cli
from rlcr_core.config import load_params


def write_report(options: argparse.Namespace) -> None:
    """Build the report of the project in the working folder and say what it found."""
    from tasks import tracking
    from tasks.paths import Project
    from tasks.reporting import build_report

    project = Project.here()
    report = build_report(project, Path(options.params))
    for text in report.findings:
        print(f"- {text}")
    for text in report.missing:
        print(f"note: {text}", file=sys.stderr)
    print(f"report: {report.index}")
    tracking.log_report(project, load_params(options.params))


def main(argv: Sequence[str] | None = None) -> int:
    return cli.run(write_report, cli.parser(__doc__), argv)


if __name__ == "__main__":
    sys.exit(main())
