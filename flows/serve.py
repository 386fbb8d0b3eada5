"""Train and evaluate on a schedule: `python -m flows.serve --cron "0 2 * * *"`, one run at a time.

Cron needs a server that stays: start one with `prefect server start` and name it in PREFECT_API_URL (it prints the
address, http://127.0.0.1:4200/api by default). A late, missed or failed run is visible in its interface. An unchanged
configuration resumes: finished training runs are not repeated, only evaluated.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from prefect import flow
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType

from flows import cli
from flows.evaluate import evaluate
from flows.train import train
from rlcr_core.config import load_params
from rlcr_core.errors import ConfigError
from tasks.table import print_table


@flow(name="pipeline", persist_result=False)
def pipeline(params_file: str = "params.yaml") -> None:
    """Every training run of the parameters, then the evaluation."""
    params = load_params(params_file)
    for mode in params.train.modes:
        for seed in params.train.seeds:
            train(mode, seed, params_file)
    print_table(evaluate(params_file))


def serve(options: argparse.Namespace) -> None:
    """Serve the pipeline until interrupted. Raises ConfigError without a server or for an impossible schedule."""
    load_params(options.params)
    if not os.environ.get("PREFECT_API_URL"):
        raise ConfigError(
            "A schedule needs a Prefect server that stays, and PREFECT_API_URL is not set. Start one with `prefect server start` "
            "in another terminal and run `PREFECT_API_URL=http://127.0.0.1:4200/api python -m flows.serve` here."
        )
    try:
        schedule = Cron(options.cron, timezone=options.timezone)
    except ValueError as error:
        raise ConfigError(
            f"--cron {options.cron!r} is no schedule ({error}); five fields are expected, such as '0 2 * * *'."
        ) from None
    pipeline.serve(
        name="rlcr",
        schedule=schedule,
        limit=1,
        parameters={"params_file": options.params},
        entrypoint_type=EntrypointType.MODULE_PATH,  # each run imports the package instead of executing this file
    )


def main(argv: Sequence[str] | None = None) -> int:
    arguments = cli.parser(__doc__)
    arguments.add_argument("--cron", default="0 2 * * *", help="when to run (default: %(default)s)")
    arguments.add_argument("--timezone", default="UTC", help="of the schedule (default: %(default)s)")
    return cli.run(serve, arguments, argv)


if __name__ == "__main__":
    sys.exit(main())
