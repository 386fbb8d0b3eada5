"""The policy being trained: model, tokenizer, optimiser, and its checkpoints, which are also what workers load."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from rlcr_core import lora
from rlcr_core.config import Params
from rlcr_core.policy import load_policy, save_policy
from rlcr_core.seeds import derive
from rlcr_core.tokens import load_tokenizer
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
        self.tokenizer = load_tokenizer(base)
        self.adapters = None if params.policy.lora is None else lora.Adapters(params.policy.lora, base)
        self.model: PreTrainedModel
        self.updater: Updater
        self.load_base()

    def load_base(self) -> None:
        """Start from the base policy (version 0) with a fresh optimiser. Raises WeightError, DataError."""
        model = load_policy(self._base)
        if self.adapters is not None:
            lora.inject(model, self.adapters.config, derive("lora", self._params.policy.digest()))
        self._adopt(model)
        self.published = Published.of(self._base, 0)

    def load(self, directory: Path, digest: str, version: int) -> None:
        """Go on from a checkpoint, bit for bit. Raises WeightError when it is not the one written."""
        model, state, _ = load_checkpoint(directory, digest, self.adapters)
        self._adopt(model)
        self.updater.load_state_dict(state)
        self._publish(directory, version)

    def _publish(self, directory: Path, version: int) -> None:
        self.published = Published.of(directory, version, None if self.adapters is None else self._base)

    def _adopt(self, model: PreTrainedModel) -> None:
        reference = load_policy(self._base) if self._params.update.kl > 0 else None
        self.model = model
        self.updater = Updater(model, self._params.update, self._params.rollouts.temperature, reference)

    def save(self, directory: Path, version: int) -> str:
        """Write the checkpoint of a new version; returns its digest. Raises WeightError for weights that are not finite."""
        state, meta = self.updater.state_dict(), {"version": version}
        digest = save_checkpoint(directory, self.model, self.tokenizer, state, meta, self.adapters)
        self._publish(directory, version)
        return digest

    def export(self, directory: Path) -> None:
        """Write the policy as a plain Hugging Face folder, adapters merged; they are also kept, in `adapter`, when trained.

        Raises StoreError.
        """
        if self.adapters is None:
            shutil.copytree(self.published.path, directory)
            return
        merged = load_policy(self._base)
        merged.load_state_dict(lora.merged_state(self.model, self.adapters.config), strict=False)
        save_policy(merged, self.tokenizer, directory)
        shutil.copytree(self.published.path, directory / "adapter")


def keep_recent(run: RunFolder, version: int, every: int) -> None:
    """Remove old checkpoints: the last two stay, and every `every`-th."""
    parent = run.checkpoint(0).parent
    for path in sorted(parent.glob("[0-9]*")):
        number = int(path.name)
        if number < version - 1 and number % every:
            shutil.rmtree(path, ignore_errors=True)
