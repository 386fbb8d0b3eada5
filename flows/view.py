"""Write the viewer of one stored rollout: a single HTML file to open in any browser, also offline.

FOLDER holds turns, events, agents and rollouts.parquet, for example runs/<run>/iterations/0059/rollouts or
artifacts/evaluation/timeline_after.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from flows import cli


def write_view(options: argparse.Namespace) -> None:
    """Choose a rollout, write its page, and say where it is and what it shows."""
    from rlcr_core.manifests import atomic_write
    from rlcr_core.store import read_rollouts
    from rlcr_core.tokens import load_tokenizer
    from tasks import viewer

    folder = Path(options.folder)
    rollouts = read_rollouts(folder)
    rollout = viewer.choose(rollouts, options.pick, options.group, options.rollout)
    tokenizer = load_tokenizer(options.tokenizer or viewer.tokenizer_folder(folder, Path.cwd()))
    values = viewer.read_values(Path(options.values), rollout) if options.values else None
    page = viewer.viewer_page(rollout, tokenizer, viewer.group_of(rollout, rollouts), values).encode()
    out = Path(options.out or f"rollout_{rollout.key.group}_{rollout.key.rollout}.html")
    atomic_write(out, page)
    print(
        f"group {rollout.key.group}, rollout {rollout.key.rollout}: return {rollout.return_:.3f}, {rollout.n_hires} hired, "
        f"{len(rollout.turns())} turns, {len(page) / 1e6:.2f} MB"
    )
    print(f"viewer: {out}")


def main(argv: Sequence[str] | None = None) -> int:
    parser = cli.parser(__doc__)
    parser.add_argument("folder", help="folder of stored rollouts")
    parser.add_argument("--group", type=int, help="number of the group (default: all)")
    parser.add_argument("--rollout", type=int, help="number of the rollout in its group")
    parser.add_argument("--pick", choices=("best", "median", "worst"), help="by return, without --rollout (default: best)")
    parser.add_argument("--out", help="file to write (default: rollout_<group>_<rollout>.html)")
    parser.add_argument("--tokenizer", help="folder of the policy that was sampled (default: its run's, or the base policy)")
    parser.add_argument("--values", help="JSON file of what messages were worth (docs/viewer.md)")
    return cli.run(write_view, parser, argv)


if __name__ == "__main__":
    sys.exit(main())
