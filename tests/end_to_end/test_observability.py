"""A job started through the API appears in logs, metrics, traces, and the archive."""

import json
import threading
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.bot.observe.test_tracing import Collector
from tests.end_to_end.server_scenario import open_server_scenario, wait_until

pytestmark = [pytest.mark.redis, pytest.mark.slow]

TOKEN = "an operator's own token"


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


async def test_a_job_from_the_api_appears_in_logs_metrics_traces_and_the_archive(
    collector: Collector,
) -> None:
    async with open_server_scenario(operator_token=TOKEN, metrics_label="canary") as server:
        archive = server.data / "archive"
        server.environment |= {
            "PATCHWRIGHT_ARCHIVE": f"file://{archive}",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        }
        issue = server.issue("watched")
        async with server.serve(), httpx.AsyncClient(base_url=server.base_url, trust_env=False) as http:
            data = {"repository": "acme/watched", "number": issue.number, "id": "watched-1"}
            assert (await http.post("/jobs", json=data)).status_code == 401
            known = {"authorization": f"Bearer {TOKEN}"}
            assert (await http.post("/jobs", json=data, headers=known)).status_code == 202
            await server.wait_until_idle()
            body = (await http.get("/jobs/watched-1", headers=known)).json()
            figures = (await http.get("/metrics")).text
            await wait_until(lambda: collector.requests)
            await wait_until((archive / "watched-1" / "events.jsonl").exists)
        log = [json.loads(line) for line in server.log.splitlines()]
        events = [
            json.loads(line) for line in (archive / "watched-1" / "events.jsonl").read_text().splitlines()
        ]

    assert (body["state"], body["result"]["kind"], body["run"]["verdict"]) == (
        "completed",
        "published",
        "fixed",
    )
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(figures)
        for sample in family.samples
    }
    assert samples["patchwright_completed_jobs_total", "canary", "published"] == 1
    assert samples["patchwright_verdicts_total", "canary", "fixed"] == 1
    assert samples["patchwright_run_seconds_count", "canary"] == 1
    assert samples["patchwright_steps_total", "canary"] == body["run"]["steps"] > 3
    assert samples["patchwright_tokens_total", "prompt", "canary", "openai/scripted"] > 0
    assert {"clone", "agent step", "chat openai/scripted", "tests before", "tests after", "publish"} <= {
        span.name for span in collector.spans
    }
    assert [event["event"]["kind"] for event in events][-1] == "job_completed"
    assert TOKEN not in json.dumps(log)
    assert {line["job"] for line in log if line["message"] == "job created by api"} == {"watched-1"}
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in log)
