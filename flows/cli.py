"""What every entry point shares: arguments, and errors as one paragraph instead of a traceback."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from rlcr_core.errors import RLCRError


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options of every entry point; the module's docstring is the description."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--params", default="params.yaml", help="parameter file (default: %(default)s)")
    made.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return made


def cause(error: BaseException) -> RLCRError | None:
    """The project's own error behind what an orchestrator or a worker raised, if there is one."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, RLCRError):
        seen = seen.__cause__ or seen.__context__
    return seen


def run(
    main: Callable[[argparse.Namespace], None], arguments: argparse.ArgumentParser, argv: Sequence[str] | None = None
) -> int:
    """Run an entry point; returns the exit code: 0, 1 after an RLCRError, 130 after an interrupt."""
    options = arguments.parse_args(argv)
    try:
        main(options)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on after the last finished stage", file=sys.stderr)
        return 130
    except Exception as error:
        known = cause(error)
        if known is None or options.debug:
            raise
        print(f"error: {known}", file=sys.stderr)
        return 1
    return 0
