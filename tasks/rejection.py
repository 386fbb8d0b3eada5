"""Set aside on disk what breaks the contract, with the reason; keep the ledger; stop when too much is excluded."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path

from rlcr_core.errors import DataError, GateError
from rlcr_core.ledger import ledger
from rlcr_core.manifests import Manifest, atomic_write, digest_file, read_manifest, write_manifest
from rlcr_core.store import Tables, from_tables, write_rollouts
from rlcr_core.types import Rollout, RolloutKey
from tasks.rollouts import Key, failed_keys, keys_of, select, without
from tasks.validation import Finding, Validator

FAILED = "failed"


def exclusions(tables: Tables, findings: Sequence[Finding]) -> dict[Key, str]:
    """Why each excluded rollout is out of the baseline and the update: `failed`, or the first rule that it breaks."""
    excluded = dict.fromkeys(sorted(failed_keys(tables)), FAILED)
    for finding in findings:
        excluded.setdefault((finding.group, finding.rollout), finding.rule)
    return excluded


def _set_aside(folder: Path, tables: Tables, findings: Sequence[Finding], excluded: dict[Key, str]) -> dict[str, str]:
    """Write the excluded rollouts and the reasons into `folder`/rejected; returns file -> SHA-256."""
    rejected = folder / "rejected"
    shutil.rmtree(rejected, ignore_errors=True)
    if not excluded:
        return {}
    files = write_rollouts(rejected, select(tables, set(excluded)))
    errors = dict(zip(keys_of(tables.rollouts), tables.rollouts["error"].to_pylist(), strict=True))
    reasons = [
        {"group": g, "rollout": r, "reason": reason, "error": errors[g, r]}
        for (g, r), reason in sorted(excluded.items())
    ]
    text = json.dumps({"excluded": reasons, "findings": [asdict(f) for f in findings]}, indent=1) + "\n"
    atomic_write(rejected / "reasons.json", text.encode())
    files["reasons.json"] = digest_file(rejected / "reasons.json")
    return {f"rejected/{name}": digest for name, digest in files.items()}


def _gate(folder: Path, dispatched: int, findings: Sequence[Finding], excluded: dict[Key, str], most: float) -> None:
    share = len(excluded) / max(1, dispatched)
    if share <= most and len(excluded) < dispatched:
        return
    counts = ", ".join(f"{count} x {reason}" for reason, count in Counter(excluded.values()).most_common())
    named = "; ".join(str(finding) for finding in findings[:3])
    raise GateError(
        f"{len(excluded)} of {dispatched} rollouts were excluded ({counts}), a share of {share:.3f}, allowed is {most:g} "
        f"(validation.max_excluded_share). {named + '. ' if named else ''}They are kept in {folder / 'rejected'} with the "
        f"reasons. Find the cause, then delete {folder} and run the same command again: the iteration is sampled anew."
    )


def validate_stage(
    folder: Path,
    inputs: dict[str, str],
    tables: Tables,
    validator: Validator,
    version: int,
    limit_s: float,
    max_excluded_share: float,
    stored: Future[None] | None = None,
) -> tuple[list[Rollout], list[Rollout]]:
    """Check, set aside, keep the ledger; returns all rollouts and those to be trained on. Idempotent by its manifest.

    Failed rollouts are excluded as such and not judged. Nothing is written before `stored`, the storing of the tables,
    is over: stages are done in their order. Raises GateError above `max_excluded_share`, with the evidence
    already on disk, or when nothing is left; DataError when a rule cannot be computed.
    """
    manifest = read_manifest(folder, "validation", inputs)
    if manifest is not None:
        excluded = {(int(g), int(r)): str(reason) for g, r, reason in manifest.data["excluded"]}
        return _split(tables, excluded)
    findings = validator.check(without(tables, failed_keys(tables)), version, limit_s)
    excluded = exclusions(tables, findings)
    dispatched, trained = _split(tables, excluded)
    if stored is not None:
        stored.result()
    files = _set_aside(folder, tables, findings, excluded)
    text = json.dumps(ledger(dispatched, excluded), indent=1, sort_keys=True) + "\n"
    atomic_write(folder / "ledger.json", text.encode())
    _gate(folder, len(dispatched), findings, excluded, max_excluded_share)
    files["ledger.json"] = digest_file(folder / "ledger.json")
    data = {"excluded": [[g, r, reason] for (g, r), reason in sorted(excluded.items())], "findings": len(findings)}
    write_manifest(folder, Manifest("validation", inputs, files, data))
    return dispatched, trained


def _split(tables: Tables, excluded: dict[Key, str]) -> tuple[list[Rollout], list[Rollout]]:
    """All rollouts, and those that are not excluded; of an excluded one that cannot be read, what its row says."""
    trained = from_tables(without(tables, set(excluded)) if excluded else tables)
    rejected = [_readable(select(tables, {key})) for key in sorted(excluded)]
    return sorted([*trained, *rejected], key=lambda r: (r.key.group, r.key.rollout)), trained


def _readable(tables: Tables) -> Rollout:
    try:
        return from_tables(tables)[0]
    except DataError:
        row = tables.rollouts.to_pylist()[0]
        key = RolloutKey(row["run"], row["iteration"], row["group"], row["rollout"])
        return Rollout(key, row["task_id"], row["limit_s"], row["seed"], end_s=row["end_s"], attempt=row["attempt"])
