"""A job as a trace: what its collector gets over HTTP, and that nobody pays for a collector that is not there."""

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

from bot.jobs import Failed
from bot.observe.spans import Span, spans_of
from bot.observe.tracing import MOST_WAITING, NoTracer, Tracer, tracing
from resolver.domain import JobId, RunId
from resolver.errors import LogError, SettingsError
from resolver.events import Resumed, Trajectory
from tests.bot.jobs import DONE, job
from tests.resolver.seen_runs import CHILD, RUN, child_run, decided, run_of, started, whole_run

LOGS = {RunId(RUN): whole_run(), RunId(CHILD): child_run()}


def read(run: RunId) -> Trajectory:
    if run not in LOGS:
        raise LogError("There is none.")
    return LOGS[run]


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP, and says yes, or what it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.requests: list[ExportTraceServiceRequest] = []
        self.status = 200
        super().__init__(("127.0.0.1", 0), Answers)

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


class Answers(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.asked.append((self.path, dict(self.headers)))
        self.server.requests.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=of the collector")
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def facts(span: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes}


async def test_a_collector_gets_a_job_as_one_trace_with_no_word_of_it(collector: Collector) -> None:
    tracer = Tracer(read, "canary")
    tracer.tell(JobId(RUN), DONE)
    await tracer.close()
    ((path, headers),) = collector.asked
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
        "prove",
        "publish",
        "invoke_agent browse",
    }
    chat = next(span for span in spans.values() if span.name == "chat vendor/model-1")
    assert spans[chat.parent_span_id].name == "agent step"
    assert facts(chat) == {
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
    about = facts(request.resource_spans[0].resource)
    assert (about["service.name"], about["patchwright.configuration"]) == ("patchwright", "canary")
    told = request.SerializeToString()
    assert not [word for word in (b"subtracts", b"calc.py", b"The brief", b"I open it.") if word in told]


async def test_dollars_that_are_not_all_say_so_and_unknown_ones_are_left_out(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = decided("a")
    unpriced = one.model_copy(update={"usage": one.usage.model_copy(update={"usd": None})})
    monkeypatch.setitem(LOGS, RunId("partly"), run_of(started(), one, unpriced))
    monkeypatch.setitem(LOGS, RunId("wholly"), run_of(started(), unpriced))
    for name, told in (("partly", {"patchwright.usd_at_least": 0.01}), ("wholly", {})):
        collector.requests.clear()
        tracer = Tracer(read, "default")
        tracer.tell(JobId(name), DONE)
        await tracer.close()
        (root,) = [span for span in collector.spans if not span.parent_span_id]
        assert {key: value for key, value in facts(root).items() if "usd" in key} == told


async def test_the_same_job_sent_twice_is_the_same_trace(collector: Collector) -> None:
    for _ in range(2):
        tracer = Tracer(read, "default")
        tracer.tell(JobId(RUN), DONE)
        await tracer.close()
    first, second = collector.requests
    assert first.resource_spans[0].scope_spans == second.resource_spans[0].scope_spans


async def test_the_clone_begins_with_the_job_and_a_failure_has_its_class(collector: Collector) -> None:
    tracer = Tracer(read, "default")

    async def resolve(asked: object) -> Any:
        return DONE

    before = datetime.now(UTC)
    await tracer.noting(resolve)(job(RUN))
    tracer.tell(JobId(RUN), Failed(error="no more room for calc.py", fault="engine"))
    await tracer.close()
    root = next(span for span in collector.spans if not span.parent_span_id)
    assert (root.status.code, root.status.message) == (2, "engine")
    began = min(before, whole_run().entries[0].at)
    assert root.start_time_unix_nano <= began.timestamp() * 1e9 + 1e9


async def test_an_answer_sends_what_was_done_since_in_the_earlier_run(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = RunId("answer")
    late = whole_run().entries[-1].at + timedelta(days=365)
    for at, count in ((whole_run().entries[-3].at, 3), (late, 0)):
        collector.requests.clear()
        own = run_of(Resumed(run=JobId(RUN)))
        own = Trajectory(tuple(entry.model_copy(update={"at": at}) for entry in own.entries))
        monkeypatch.setitem(LOGS, answer, own)
        tracer = Tracer(read, "default")
        tracer.tell(JobId(answer), DONE)
        await tracer.close()
        names = [span.name for span in collector.spans]
        assert [span.name for span in collector.spans if not span.parent_span_id] == [
            "invoke_agent patchwright"
        ]
        assert (len(names) >= count) and ("publish" in names) is bool(count) and "clone" not in names


async def test_a_collector_that_is_away_costs_its_traces_and_no_time_of_the_jobs(
    collector: Collector, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector.status = 400
    tracer = Tracer(read, "default")
    for _ in range(MOST_WAITING + 1):
        tracer.tell(JobId("none"), DONE)
    tracer.tell(JobId(RUN), DONE)
    assert [record.message for record in caplog.records].count("trace dropped") == 2
    await asyncio.sleep(0)
    await tracer.close()
    assert collector.requests == []  # of a job without a log there is nothing to tell
    refused = Tracer(read, "default")
    refused.tell(JobId(RUN), DONE)
    await refused.close()
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
def test_who_names_no_collector_has_none(environ: dict[str, str]) -> None:
    assert isinstance(tracing(environ, read, "default"), NoTracer)


def test_a_protocol_that_is_not_spoken_is_said_at_the_start() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    with pytest.raises(SettingsError, match="OTEL_EXPORTER_OTLP_PROTOCOL is grpc"):
        tracing(environ, read, "default")
    assert isinstance(tracing({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, read, "default"), Tracer)


def test_nothing_of_it_is_imported_where_nobody_wants_it() -> None:
    code = (
        "import sys, bot.compose, bot.work, bot.observe.tracing\n"
        "bot.observe.tracing.tracing({}, None, 'x')\n"
        "print([name for name in sys.modules if 'opentelemetry' in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_spans_stay_within_the_whole_and_a_run_without_a_log_has_none() -> None:
    root, *others = spans_of(RunId(RUN), read)
    assert isinstance(root, Span) and root.parent is None
    own = [span for span in others if span.parent == root.id]
    assert own and all(root.start <= span.start <= span.end <= root.end for span in own)
    assert spans_of(RunId("none"), read) == ()
