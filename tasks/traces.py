"""Sampled rollouts as MLflow traces: a span a turn, at the seconds of the rollout's own clock.

Time zero is the moment of logging; agents that worked at the same time are bars side by side. Traces are for people:
training reads none, they are written in the background, and one that cannot be written is a warning.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rlcr_core.errors import StoreError
from rlcr_core.tokens import Tokenizer
from rlcr_core.types import Rollout
from tasks.spans import MAX_SPANS, Pick, Span, build_spans, pick_rollouts
from tasks.tracking import Tracker

NS = 1_000_000_000


def log_traces(
    tracker: Tracker,
    rollouts: Sequence[Rollout],
    tokenizer: Tokenizer,
    tags: Mapping[str, str] | None = None,
    max_spans: int = MAX_SPANS,
) -> None:
    """Log the best, median and worst of one group of these rollouts in the background; a failure is one warning.

    Tags of a trace: run, iteration, group, rollout, pick, and `tags` (an organisation's name, for instance), all text.
    One that is in the store already, with the same tags, is not logged again.
    """
    picks = pick_rollouts(rollouts)
    zero_ns = time.time_ns() // NS * NS
    tracker.attempt("traces", lambda: _log(tracker, picks, tokenizer, dict(tags or {}), zero_ns, max_spans))


def _log(
    tracker: Tracker, picks: Sequence[Pick], tokenizer: Tokenizer, extra: dict[str, str], zero_ns: int, max_spans: int
) -> None:
    traces = []
    for pick in picks:
        key = pick.rollout.key
        tags = {name: str(value) for name, value in key._asdict().items()} | {"pick": pick.name} | extra
        if not tracker.has_trace(tags):
            spans = build_spans(pick, tokenizer, max_spans)
            spans[0].name = " ".join([spans[0].name, *extra.values()])  # the trace's name
            traces.append((spans, tags))
    write_traces(tracker, traces, zero_ns)


def write_traces(tracker: Tracker, traces: Sequence[tuple[list[Span], Mapping[str, str]]], zero_ns: int) -> list[str]:
    """Write spans with their tags as traces whose time zero is `zero_ns` (nanoseconds since 1970); returns their ids.

    MLflow reports what it could not write to its own log only, so each trace is read back. Raises StoreError.
    """
    ids = [_write(tracker, spans, tags, zero_ns) for spans, tags in traces]
    tracker.mlflow.flush_trace_async_logging()
    for trace_id, (spans, _) in zip(ids, traces, strict=True):
        stored = tracker.mlflow.get_trace(trace_id, silent=True)
        n_stored = 0 if stored is None else len(stored.data.spans)
        if n_stored != len(spans):
            raise StoreError(f"{n_stored} of the {len(spans)} spans of the trace {spans[0].name!r} are stored, expected all")
    return ids


def _write(tracker: Tracker, spans: Sequence[Span], tags: Mapping[str, str], zero_ns: int) -> str:
    """Hand a trace over to MLflow, which writes it in the background: parents start before children and end after them."""
    mlflow, entities = tracker.mlflow, tracker.mlflow.entities
    made: list[Any] = []
    for span in spans:
        is_root = span.parent < 0
        live = mlflow.start_span_no_context(
            span.name, span.type, None if is_root else made[span.parent], span.inputs, span.attributes,
            tags=dict(tags) if is_root else None, metadata={"mlflow.sourceRun": tracker.run_id} if is_root else None,
            experiment_id=tracker.experiment_id if is_root else None, start_time_ns=at_ns(zero_ns, span.start_s),
        )  # fmt: skip
        for time_s, name, attributes in span.events:
            live.add_event(entities.SpanEvent(name, at_ns(zero_ns, time_s), attributes))
        made.append(live)
    for span, live in zip(reversed(spans), reversed(made), strict=True):
        code = entities.SpanStatusCode.ERROR if span.error else entities.SpanStatusCode.OK
        live.end(span.outputs, status=entities.SpanStatus(code, span.error), end_time_ns=at_ns(zero_ns, span.end_s))
    return str(made[0].trace_id)


def at_ns(zero_ns: int, time_s: float) -> int:
    """Seconds of a rollout as nanoseconds since 1970."""
    return zero_ns + round(time_s * NS)
