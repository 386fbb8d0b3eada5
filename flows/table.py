"""Print the table of the last evaluation again: `python -m flows.table`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from flows import cli
from rlcr_core.errors import DataError
from tasks.paths import Project
from tasks.table import print_table


def show(_: argparse.Namespace) -> None:
    """Read artifacts/evaluation/summary.json and print it. Raises DataError when there is none."""
    path = Project.here().evaluation / "summary.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); make it with `dvc repro evaluate`.") from error
    print_table(summary)


def main(argv: Sequence[str] | None = None) -> int:
    return cli.run(show, cli.parser(__doc__), argv)


if __name__ == "__main__":
    sys.exit(main())
