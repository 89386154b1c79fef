"""Sends an OpenTelemetry trace of each job to a collector when the job ends. The traces are sent in the
background.
"""

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from patchwright.bot.job_runner import JobResolver
from patchwright.bot.jobs import Failed, JobResult
from patchwright.bot.observe.spans import ReadLog, Span, build_spans
from patchwright.resolver.domain import Job, JobId, Outcome, RunId
from patchwright.resolver.errors import LogError, SettingsError
from patchwright.runtime import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

log = logging.getLogger(__name__)

EXPORT_BATCH_SIZE = 200  # maximum number of spans per request
# maximum number of jobs whose traces wait; if the collector is too slow, further traces are dropped
MAX_PENDING_TRACES = 100
CLOSE_TIMEOUT_SECONDS = 5.0  # how long a worker that stops waits for its pending traces


class NullTracer:
    """A tracer that sends nothing, for deployments without a collector."""

    def track_start(self, resolve: JobResolver) -> JobResolver:
        return resolve

    def send_trace(self, job: JobId, result: JobResult) -> None:
        return

    async def close(self) -> None:
        return


class Tracer:
    """Sends traces by OTLP over HTTP to OTEL_EXPORTER_OTLP_ENDPOINT."""

    def __init__(self, read_log: ReadLog, metrics_label: str) -> None:
        """`read_log` returns the log of a run. It blocks, and may raise LogError. The constructor raises
        SettingsError if the OpenTelemetry exporter is not installed.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
        except ImportError as exc:
            raise SettingsError(
                "OTEL_EXPORTER_OTLP_ENDPOINT needs another package: pip install patchwright[otel]."
            ) from exc
        self._read_log = read_log
        self._exporter = OTLPSpanExporter()
        resource = Resource.create({"service.version": VERSION, "patchwright.metrics_label": metrics_label})
        # True if OTEL_SERVICE_NAME is not set, so that the default name is used.
        is_unnamed = str(resource.attributes["service.name"]).startswith("unknown_service")
        self._resource = resource.merge(Resource({"service.name": "patchwright"})) if is_unnamed else resource
        self._started_at: dict[JobId, datetime] = {}
        self._pending: set[asyncio.Task[None]] = set()
        # Only one trace is sent at a time, so that a collector that hangs blocks only one thread.
        self._export_lock = asyncio.Lock()

    def track_start(self, resolve: JobResolver) -> JobResolver:
        """Wraps `resolve` to record when each job starts."""

        async def resolve_and_record(job: Job) -> Outcome:
            self._started_at[job.id] = datetime.now(UTC)
            return await resolve(job)

        return resolve_and_record

    def send_trace(self, job: JobId, result: JobResult) -> None:
        """Sends the trace of a job in the background. Returns at once and never raises."""
        started_at = self._started_at.pop(job, None)
        if len(self._pending) >= MAX_PENDING_TRACES:
            log.warning("trace dropped", extra={"job": job})
            return
        task = asyncio.create_task(self._send(job, started_at, result))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def _send(self, job: JobId, started_at: datetime | None, result: JobResult) -> None:
        spans = await asyncio.to_thread(self._build_job_spans, job, started_at, result)
        async with self._export_lock:
            for first in range(0, len(spans), EXPORT_BATCH_SIZE):
                exported = await asyncio.to_thread(
                    self._exporter.export, spans[first : first + EXPORT_BATCH_SIZE]
                )
                if exported.name != "SUCCESS":  # the exporter has logged the reason
                    log.warning("trace not sent", extra={"job": job})
                    return

    def _build_job_spans(
        self, job: JobId, started_at: datetime | None, result: JobResult
    ) -> "list[ReadableSpan]":
        failure = result.fault if isinstance(result, Failed) else ""
        spans = list(build_spans(job, self._read_log, started_at, failure))
        try:
            resumed = self._read_log(job).run_resumed
        except LogError:
            resumed = None
        if resumed and spans:  # the job continued an earlier run, whose log contains the work
            root, *parts = build_spans(resumed.run, self._read_log) or spans[:1]
            later = [span for span in parts if span.end >= spans[0].start]
            spans += [root.model_copy(update={"parent": job}), *later] if later else []
        return [self._to_readable_span(span, job) for span in spans]

    def _to_readable_span(self, span: Span, job: RunId) -> "ReadableSpan":
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        def context(name: str) -> SpanContext:
            trace_id, span_id = _stable_id(f"trace {job}", 16), _stable_id(f"span {job} {name}", 8)
            return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        status = Status(StatusCode.ERROR, span.failure) if span.failure else Status(StatusCode.OK)
        return ReadableSpan(
            name=span.name,
            context=context(span.id),
            parent=context(span.parent) if span.parent else None,
            resource=self._resource,
            attributes=dict(span.attributes),
            kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
            status=status,
            start_time=_to_nanoseconds(span.start),
            end_time=_to_nanoseconds(span.end),
        )

    async def close(self) -> None:
        """Waits briefly for pending traces, then closes the exporter."""
        if self._pending:
            await asyncio.wait(self._pending, timeout=CLOSE_TIMEOUT_SECONDS)
        for task in self._pending:
            task.cancel()
        await asyncio.to_thread(self._exporter.shutdown)


def build_tracer(environ: Mapping[str, str], read_log: ReadLog, metrics_label: str) -> Tracer | NullTracer:
    """Returns a tracer for the collector in the environment, or a NullTracer if there is none. Raises
    SettingsError.

    Source: opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables
    """
    is_disabled = (
        environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environ.get("OTEL_TRACES_EXPORTER") == "none"
    )
    endpoint_variables = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if is_disabled or not any(environ.get(name) for name in endpoint_variables):
        return NullTracer()
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if (protocol := environ.get(name, "")) not in ("", "http/protobuf"):
            raise SettingsError(f"{name} is {protocol[:40]}, but only http/protobuf is supported.")
    return Tracer(read_log, metrics_label)


def _stable_id(name: str, size: int) -> int:
    """Returns an id that depends only on the name. A trace that is sent twice is therefore stored once."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:size]) or 1


def _to_nanoseconds(time: datetime) -> int:
    return round(time.timestamp() * 1_000_000) * 1000
