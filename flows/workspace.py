"""Run the whole pipeline with another parameter file: `python -m flows.workspace docs/profiles/demo-llm.yaml`.

It runs in a folder of its own (default: runs/<name of the file>), so nothing of the project's own results changes;
interrupted and started again, it goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from flows import cli
from rlcr_core.errors import StageError
from tasks.workspace import prepare_workspace, repro


def run(options: argparse.Namespace) -> None:
    """Prepare the workspace, run `dvc repro` there, say where the results are."""
    root = Path(__file__).resolve().parent.parent
    folder = (options.folder or root / "runs" / options.profile.stem).resolve()
    prepare_workspace(root, options.profile, folder)
    code = repro(folder)
    if code:
        raise StageError(
            f"`dvc repro` in {folder} ended with exit code {code}; its own message is above. Correct what it names and run the "
            "same command again: finished stages are kept."
        )
    print(f"Report  {folder / 'artifacts' / 'report' / 'index.html'}")
    print(f"MLflow  mlflow ui --backend-store-uri sqlite:///{folder / 'mlflow.db'}")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("profile", type=Path, help="a complete parameter file, such as docs/profiles/demo-llm.yaml")
    arguments.add_argument("--folder", type=Path, help="the workspace (default: runs/<profile>)")
    arguments.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return cli.run(run, arguments, argv)


if __name__ == "__main__":
    sys.exit(main())
