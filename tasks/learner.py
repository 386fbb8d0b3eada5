"""The policy being trained: model, tokenizer, optimiser, and its checkpoints, which are also what workers load."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from rlcr_core.config import Params
from rlcr_core.policy import load_policy
from rlcr_core.tokens import WordTokenizer
from rlcr_core.update import Updater
from rlcr_core.weights import Published, load_checkpoint, save_checkpoint
from tasks.paths import RunFolder

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Learner:
    """Holds the weights of one version; `published` is where the workers find exactly these."""

    def __init__(self, params: Params, base: Path) -> None:
        self._params = params
        self._base = base
        self.tokenizer = WordTokenizer.load(base)
        self.model: PreTrainedModel
        self.updater: Updater
        self.load_base()

    def load_base(self) -> None:
        """Start from the base policy (version 0) with a fresh optimiser. Raises WeightError, DataError."""
        self._adopt(load_policy(self._base))
        self.published = Published.of(self._base, 0)

    def load(self, directory: Path, digest: str, version: int) -> None:
        """Go on from a checkpoint, bit for bit. Raises WeightError when it is not the one written."""
        model, state, _ = load_checkpoint(directory, digest)
        self._adopt(model)
        self.updater.load_state_dict(state)
        self.published = Published.of(directory, version)

    def _adopt(self, model: PreTrainedModel) -> None:
        reference = load_policy(self._base) if self._params.update.kl > 0 else None
        self.model = model
        self.updater = Updater(model, self._params.update, self._params.rollouts.temperature, reference)

    def save(self, directory: Path, version: int) -> str:
        """Write the checkpoint of a new version; returns its digest. Raises WeightError for weights that are not finite."""
        digest = save_checkpoint(directory, self.model, self.tokenizer, self.updater.state_dict(), {"version": version})
        self.published = Published.of(directory, version)
        return digest


def keep_recent(run: RunFolder, version: int, every: int) -> None:
    """Remove old checkpoints: the last two stay, and every `every`-th."""
    parent = run.checkpoint(0).parent
    for path in sorted(parent.glob("[0-9]*")):
        number = int(path.name)
        if number < version - 1 and number % every:
            shutil.rmtree(path, ignore_errors=True)
