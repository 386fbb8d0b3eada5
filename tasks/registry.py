"""MLflow's model registry: one name per experiment and mode, a version per checkpoint, and the alias `best`.

`models:/<name>@best` is the version with the highest return on the validation tasks, never on the test tasks that claims
are measured on; `models:/<name>/latest` is MLflow's own word for the newest. Returns that were measured differently (other
tasks, another limit, other costs of the clock) are not comparable: a change of the measure starts a new contest for `best`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcr_core.errors import StoreError
from rlcr_core.manifests import digest_bytes, digest_file

BEST = "best"


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """What tells one trained policy from another, and what it is judged by."""

    model: str  # the registered name
    digest: str  # of the weights
    seed: int
    return_: float  # on the validation tasks, after the last iteration
    measure: str  # digest of what decides how that return was measured

    def tags(self) -> dict[str, str]:
        return {"digest": self.digest, "seed": str(self.seed), "return": repr(self.return_), "measure": self.measure}


def model_name(experiment: str, mode: str) -> str:
    """`rlcr-collective`; characters that a registered name cannot hold become `-`."""
    return re.sub(r"[/:\s]", "-", f"{experiment}-{mode}")


def weights_digest(checkpoint: Path) -> str:
    """SHA-256 of a checkpoint's weights, without the optimiser. Raises StoreError when the folder has none."""
    files = sorted(checkpoint.glob("model*.safetensors"))
    if not files:
        raise StoreError(f"{checkpoint} has no weights (model*.safetensors); train the policy, or restore it with dvc pull.")
    return digest_file(files[0]) if len(files) == 1 else digest_bytes("".join(map(digest_file, files)).encode())


def register(client: Any, run_id: str, model_id: str, version: PolicyVersion) -> str:
    """Make a version of the run's checkpoint, unless these weights have one, and move `best`; returns the version's number.

    The version's files are the artifacts `checkpoint` of the run. Whatever MLflow raises is the caller's to name.
    """
    versions = _versions(client, version.model)
    number = next((str(v.version) for v in versions if v.tags.get("digest") == version.digest), None)
    if number is None:
        if not versions:
            _create_model(client, version.model)
        source = f"{client.get_run(run_id).info.artifact_uri}/checkpoint"
        made = client.create_model_version(version.model, source, run_id, version.tags(), model_id=model_id)
        number = str(made.version)
        versions = _versions(client, version.model)
    best = _best([v for v in versions if v.tags.get("measure") == version.measure])
    if str(client.get_registered_model(version.model).aliases.get(BEST)) != best:
        client.set_registered_model_alias(version.model, BEST, best)
    return number


def _versions(client: Any, name: str) -> list[Any]:
    """All versions, in the order of their making."""
    found, token = [], None
    while True:
        page = client.search_model_versions(f"name = '{name}'", page_token=token)
        found.extend(page)
        token = page.token
        if not token:
            return sorted(found, key=lambda v: int(v.version))


def _create_model(client: Any, name: str) -> None:
    try:
        client.create_registered_model(name)
    except Exception:  # another run made it just now, or an earlier one died before its first version
        client.get_registered_model(name)


def _best(versions: list[Any]) -> str:
    """The number of the version with the highest return; of equal ones the first, so that the alias moves only upwards."""
    return str(max(versions, key=lambda v: float(v.tags["return"])).version)
