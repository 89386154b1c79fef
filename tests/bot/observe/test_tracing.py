"""Jobs as traces: what a collector receives over HTTP, and that jobs never wait for a collector."""

import asyncio
import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from patchwright.bot.jobs import Failed
from patchwright.bot.observe.spans import Span, build_spans
from patchwright.bot.observe.tracing import MAX_PENDING_TRACES, NullTracer, Tracer, build_tracer
from patchwright.resolver.domain import JobId, RunId
from patchwright.resolver.errors import LogError, SettingsError
from patchwright.resolver.events import Trajectory
from patchwright.resolver.run_events import RunResumed
from tests.bot.jobs import DONE, job
from tests.resolver.sample_runs import CHILD, RUN, child_run, full_run, model_reply, run_of, started

LOGS = {RunId(RUN): full_run(), RunId(CHILD): child_run()}


def read(run: RunId) -> Trajectory:
    if run not in LOGS:
        raise LogError("There is none.")
    return LOGS[run]


class Collector(ThreadingHTTPServer):
    """Accepts OTLP over HTTP, and responds with a configurable status."""

    def __init__(self) -> None:
        self.received: list[tuple[str, dict[str, str]]] = []
        self.requests: list[ExportTraceServiceRequest] = []
        self.status = 200
        super().__init__(("127.0.0.1", 0), CollectorHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for of_resource in request.resource_spans
            for scope in of_resource.scope_spans
            for span in scope.spans
        ]


class CollectorHandler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.received.append((self.path, dict(self.headers)))
        self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=of the collector")
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def attributes_of(span: Any) -> dict[str, Any]:
    return {
        attribute.key: getattr(attribute.value, attribute.value.WhichOneof("value"))
        for attribute in span.attributes
    }


async def test_a_collector_gets_a_job_as_one_trace_without_contents(collector: Collector) -> None:
    tracer = Tracer(read, "canary")
    tracer.send_trace(JobId(RUN), DONE)
    await tracer.close()
    ((path, headers),) = collector.received
    assert (path, headers["x-key"]) == ("/v1/traces", "of the collector")
    spans = {span.span_id: span for span in collector.spans}
    assert len(spans) == len(collector.spans) > 20
    assert len({span.trace_id for span in spans.values()}) == 1
    (root,) = [span for span in spans.values() if not span.parent_span_id]
    assert all(span.parent_span_id in spans for span in spans.values() if span is not root)
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans.values())
    assert {span.name for span in spans.values()} >= {
        "invoke_agent patchwright",
        "clone",
        "set up",
        "agent step",
        "chat vendor/model-1",
        "execute_tool run_shell",
        "tests before",
        "tests after",
        "verify",
        "publish",
        "invoke_agent browse",
    }
    chat = next(span for span in spans.values() if span.name == "chat vendor/model-1")
    assert spans[chat.parent_span_id].name == "agent step"
    assert attributes_of(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vendor",
        "gen_ai.request.model": "vendor/model-1",
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "patchwright.usd": 0.01,
    }
    delegate = next(span for span in spans.values() if span.name == "invoke_agent browse")
    assert spans[delegate.parent_span_id].name == "execute_tool browse"
    (request,) = collector.requests
    resource = attributes_of(request.resource_spans[0].resource)
    assert (resource["service.name"], resource["patchwright.metrics_label"]) == ("patchwright", "canary")
    expected = request.SerializeToString()
    assert not [word for word in (b"subtracts", b"calc.py", b"The brief", b"I open it.") if word in expected]


async def test_partly_known_costs_are_marked_and_unknown_ones_omitted(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    reply = model_reply("a")
    unpriced = reply.model_copy(update={"usage": reply.usage.model_copy(update={"usd": None})})
    monkeypatch.setitem(LOGS, RunId("partly"), run_of(started(), reply, unpriced))
    monkeypatch.setitem(LOGS, RunId("wholly"), run_of(started(), unpriced))
    for name, expected in (("partly", {"patchwright.usd_at_least": 0.01}), ("wholly", {})):
        collector.requests.clear()
        tracer = Tracer(read, "default")
        tracer.send_trace(JobId(name), DONE)
        await tracer.close()
        (root,) = [span for span in collector.spans if not span.parent_span_id]
        assert {key: value for key, value in attributes_of(root).items() if "usd" in key} == expected


async def test_the_same_job_sent_twice_is_the_same_trace(collector: Collector) -> None:
    for _ in range(2):
        tracer = Tracer(read, "default")
        tracer.send_trace(JobId(RUN), DONE)
        await tracer.close()
    first, second = collector.requests
    assert first.resource_spans[0].scope_spans == second.resource_spans[0].scope_spans


async def test_the_clone_starts_with_the_job_and_a_failure_has_its_fault(collector: Collector) -> None:
    tracer = Tracer(read, "default")

    async def resolve(started_job: object) -> Any:
        return DONE

    before = datetime.now(UTC)
    await tracer.track_start(resolve)(job(RUN))
    tracer.send_trace(JobId(RUN), Failed(error="no more room for calc.py", fault="engine"))
    await tracer.close()
    root = next(span for span in collector.spans if not span.parent_span_id)
    assert (root.status.code, root.status.message) == (2, "engine")
    started_at = min(before, full_run().entries[0].timestamp)
    assert root.start_time_unix_nano <= started_at.timestamp() * 1e9 + 1e9


async def test_a_resumed_run_sends_the_new_spans_of_the_earlier_run(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = RunId("answer")
    late = full_run().entries[-1].timestamp + timedelta(days=365)
    for at, count in ((full_run().entries[-3].timestamp, 3), (late, 0)):
        collector.requests.clear()
        own = run_of(RunResumed(run=JobId(RUN)))
        own = Trajectory(tuple(entry.model_copy(update={"timestamp": at}) for entry in own.entries))
        monkeypatch.setitem(LOGS, answer, own)
        tracer = Tracer(read, "default")
        tracer.send_trace(JobId(answer), DONE)
        await tracer.close()
        names = [span.name for span in collector.spans]
        assert [span.name for span in collector.spans if not span.parent_span_id] == [
            "invoke_agent patchwright"
        ]
        assert (len(names) >= count) and ("publish" in names) is bool(count) and "clone" not in names


async def test_an_unreachable_collector_drops_traces_without_delaying_jobs(
    collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.status = 400
    tracer = Tracer(read, "default")
    for _ in range(MAX_PENDING_TRACES + 1):
        tracer.send_trace(JobId("none"), DONE)
    tracer.send_trace(JobId(RUN), DONE)
    assert [record.message for record in caplog.records].count("trace dropped") == 2
    await asyncio.sleep(0)
    await tracer.close()
    assert collector.requests == []  # a job without a log has no spans
    rejected = Tracer(read, "default")
    rejected.send_trace(JobId(RUN), DONE)
    await rejected.close()
    assert "trace not sent" in [record.message for record in caplog.records]


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "True"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_without_an_endpoint_there_is_no_tracer(environ: dict[str, str]) -> None:
    assert isinstance(build_tracer(environ, read, "default"), NullTracer)


def test_an_unsupported_protocol_is_rejected_at_startup() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_OTLP_PROTOCOL is grpc"):
        build_tracer(environ, read, "default")
    assert isinstance(
        build_tracer({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, read, "default"), Tracer
    )


@pytest.mark.slow
def test_opentelemetry_is_imported_only_for_a_collector() -> None:
    code = (
        "import sys, patchwright.bot.composition.composition_root, patchwright.bot.worker.worker_process\n"
        "import patchwright.bot.observe.tracing\n"
        "patchwright.bot.observe.tracing.build_tracer({}, None, 'x')\n"
        "print([name for name in sys.modules if 'opentelemetry' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_spans_stay_within_the_root_and_a_run_without_a_log_has_none() -> None:
    root, *others = build_spans(RunId(RUN), read)
    assert isinstance(root, Span) and root.parent is None
    own = [span for span in others if span.parent == root.id]
    assert own and all(root.start <= span.start <= span.end <= root.end for span in own)
    assert build_spans(RunId("none"), read) == ()
