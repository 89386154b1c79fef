"""Jobs as OpenTelemetry traces, for those who have a collector: sent when a job has ended, and not waited for."""

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bot.jobs import Failed, Result
from bot.observe.spans import Read, Span, spans_of
from bot.worker import Resolve
from resolver.domain import Job, JobId, Outcome, RunId
from resolver.errors import LogError, SettingsError
from resolver.settings.configuration import own_version

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

log = logging.getLogger(__name__)

AT_ONCE = 200  # spans in one request
MOST_WAITING = (
    100  # jobs whose traces are on their way; beyond that the collector is lost, and they are dropped
)
LEAVE_SECONDS = 5.0  # for what is on its way when the worker goes


class NoTracer:
    """Where nobody has a collector."""

    def noting(self, resolve: Resolve) -> Resolve:
        return resolve

    def tell(self, job: JobId, result: Result) -> None:
        return

    async def close(self) -> None:
        return


class Tracer:
    """Sends traces by OTLP over HTTP, to where OTEL_EXPORTER_OTLP_ENDPOINT says."""

    def __init__(self, read: Read, configuration: str) -> None:
        """`read` gives the log of a run; it blocks, and raises LogError. Raises SettingsError."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
        except ImportError as exc:
            raise SettingsError(
                "OTEL_EXPORTER_OTLP_ENDPOINT is set, and its package is not installed: pip install patchwright[otel]."
            ) from exc
        self._read = read
        self._exporter = OTLPSpanExporter()
        made = Resource.create({"service.version": own_version(), "patchwright.configuration": configuration})
        unnamed = str(made.attributes["service.name"]).startswith(
            "unknown_service"
        )  # OTEL_SERVICE_NAME names it
        self._resource = made.merge(Resource({"service.name": "patchwright"})) if unnamed else made
        self._began: dict[JobId, datetime] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()  # a collector that hangs takes one thread, not all

    def noting(self, resolve: Resolve) -> Resolve:
        """`resolve`, and it is known when a job was begun."""

        async def noted(job: Job) -> Outcome:
            self._began[job.id] = datetime.now(UTC)
            return await resolve(job)

        return noted

    def tell(self, job: JobId, result: Result) -> None:
        """Send the job's trace; returns at once, and never raises."""
        began = self._began.pop(job, None)
        if len(self._sending) >= MOST_WAITING:
            log.warning("trace dropped", extra={"job": job})
            return
        task = asyncio.create_task(self._tell(job, began, result))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _tell(self, job: JobId, began: datetime | None, result: Result) -> None:
        spans = await asyncio.to_thread(self._spans, job, began, result)
        async with self._turn:
            for first in range(0, len(spans), AT_ONCE):
                sent = await asyncio.to_thread(self._exporter.export, spans[first : first + AT_ONCE])
                if sent.name != "SUCCESS":  # it has said why
                    log.warning("trace not sent", extra={"job": job})
                    return

    def _spans(self, job: JobId, began: datetime | None, result: Result) -> "list[ReadableSpan]":
        failed = result.fault if isinstance(result, Failed) else ""
        found = list(spans_of(job, self._read, began, failed))
        try:
            resumed = self._read(job).resumed
        except LogError:
            resumed = None
        if resumed and found:  # the work is in the log of an earlier run, behind what was done then
            whole, *parts = spans_of(resumed.run, self._read) or found[:1]
            since = [span for span in parts if span.end >= found[0].start]
            found += [whole.model_copy(update={"parent": job}), *since] if since else []
        return [self._readable(span, job) for span in found]

    def _readable(self, span: Span, job: RunId) -> "ReadableSpan":
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        def context(name: str) -> SpanContext:
            trace, own = _number(f"trace {job}", 16), _number(f"span {job} {name}", 8)
            return SpanContext(trace, own, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

        status = Status(StatusCode.ERROR, span.failed) if span.failed else Status(StatusCode.OK)
        return ReadableSpan(
            name=span.name,
            context=context(span.id),
            parent=context(span.parent) if span.parent else None,
            resource=self._resource,
            attributes=dict(span.attributes),
            kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
            status=status,
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(span.end),
        )

    async def close(self) -> None:
        """What is on its way is waited for a moment."""
        if self._sending:
            await asyncio.wait(self._sending, timeout=LEAVE_SECONDS)
        for task in self._sending:
            task.cancel()
        await asyncio.to_thread(self._exporter.shutdown)


def tracing(environ: Mapping[str, str], read: Read, configuration: str) -> Tracer | NoTracer:
    """Of the collector that this environment names, if it does. Raises SettingsError.

    Source: opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables
    """
    off = (
        environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or environ.get("OTEL_TRACES_EXPORTER") == "none"
    )
    named = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if off or not any(environ.get(name) for name in named):
        return NoTracer()
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if (wanted := environ.get(name, "")) not in ("", "http/protobuf"):
            raise SettingsError(f"{name} is {wanted[:40]}: traces are sent as http/protobuf only.")
    return Tracer(read, configuration)


def _number(name: str, size: int) -> int:
    """The same for the same name, so that a trace that is sent twice is one."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:size]) or 1


def _nanoseconds(at: datetime) -> int:
    return round(at.timestamp() * 1_000_000) * 1000
