"""The list of runs: filters, pagination, statistics and component health."""

import hmac
import re
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from patchwright.bot.dashboard.run_list import MAX_QUERY_FIELDS, RunStatistics
from patchwright.bot.faults import EXTERNAL_FAULTS
from patchwright.bot.jobs import Failed, GitHubWait, JobRecord, Retry
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.counters import Counters
from patchwright.bot.redis.engine_health import EngineHealth, report_after_sweep
from patchwright.bot.redis.leader_lease import LeaderLease, PollFailure
from patchwright.bot.run_summary import RunSummary, summarize_log
from patchwright.resolver.domain import JobId, Published, Rejected, Repo, ThreadSnapshot, Verdict
from patchwright.resolver.events import JobCompleted
from patchwright.runtime.errors import EngineUnavailable
from tests.bot.dashboard.conftest import DashboardServer
from tests.bot.jobs import DONE
from tests.resolver.sample_runs import run_of

pytestmark = pytest.mark.redis

NOW = time.time()


def run_summary(number: int, **more: object) -> RunSummary:
    base = {"run": f"acme-calc-{number}", "state": "published", "repository": "acme/calc", "number": number}
    return RunSummary.model_validate(
        {**base, "title": f"Issue {number}", "started_at": NOW - number * 60, **more}
    )


@pytest.fixture
async def filled_list(server: DashboardServer) -> httpx.AsyncClient:
    """The operator's browser, with eight runs in the list."""
    for one in (
        run_summary(1, verdict="fixed", pull_request=101, cost_usd=0.5),
        run_summary(2, verdict="fixed", pull_request=102, cost_usd=0.25, requester="ada"),
        run_summary(3, verdict="unproven", pull_request=103, cost_usd=1.0),
        run_summary(4, verdict="fixed", pull_request=104, cost_usd=0.25),
        run_summary(5, state="failed", title="The <b>disk</b> is full"),
        run_summary(6, state="reported", verdict="regressed", repository="acme/web"),
        run_summary(7, state="running", repository="acme/web", cost_usd=0.125, is_cost_known=False),
        run_summary(8, state="input_required", title="Größe and more"),
    ):
        await server.runs.put(one)
    return await server.operator()


async def list_runs(browser: httpx.AsyncClient, **query: str) -> list[str]:
    answer = await browser.get("/", params=query)
    assert answer.status_code == 200
    return re.findall(r'href="/runs/acme-calc-(\d+)"', answer.text)


FILTERS: list[tuple[dict[str, str], str]] = [
    ({}, "12345678"),
    ({"state": "published"}, "1234"),
    ({"verdict": "fixed"}, "124"),
    ({"repository": "acme/web"}, "67"),
    ({"repository": "ACME/Web"}, "67"),
    ({"text": "disk"}, "5"),
    ({"text": "GRÖSSE"}, ""),
    ({"text": "größe"}, "8"),
    ({"text": "acme/web#7"}, "7"),
    ({"text": "ada"}, "2"),
    ({"text": "acme-calc-3"}, "3"),
    ({"state": "published", "verdict": "fixed", "text": "issue 4"}, "4"),
    ({"state": "", "repository": "", "verdict": "", "text": " ", "page": ""}, "12345678"),
    ({"unknown": "x"}, "12345678"),
    ({"page": "2"}, ""),
    ({"text": "' OR 1=1 --"}, ""),
]


async def test_a_filter_shows_matching_runs(filled_list: httpx.AsyncClient) -> None:
    found = [(query, "".join(await list_runs(filled_list, **query))) for query, _ in FILTERS]
    assert found == FILTERS


async def test_the_filter_form_keeps_its_values(filled_list: httpx.AsyncClient) -> None:
    page = (
        await filled_list.get("/", params={"state": "input_required", "text": '"><script>x</script>'})
    ).text
    assert '<option value="input_required" selected>input required</option>' in page
    assert 'value="&#34;&gt;&lt;script&gt;x&lt;/script&gt;"' in page
    assert "No runs match this filter." in page
    assert "<script>x" not in page


INVALID_QUERIES = (
    "state=lost",
    "verdict=great",
    "page=0",
    "page=-1",
    "page=x",
    "page=" + "9" * 150,
    "page=10001",
    "text=" + "x" * 201,
    "&".join(f"f{n}={n}" for n in range(1_000)),
    "&".join(["state=input_required"] * (MAX_QUERY_FIELDS + 1)),
)


async def test_an_invalid_filter_is_rejected(server: DashboardServer) -> None:
    browser = await server.operator()
    for query in INVALID_QUERIES:
        answer = await browser.get(f"/?{query}")
        is_rejected = "Invalid request" in answer.text
        assert (query[:40], answer.status_code, is_rejected) == (query[:40], 400, True)


async def test_pagination_links_keep_the_filter(server: DashboardServer) -> None:
    for number in range(1, 121):
        await server.runs.put(run_summary(number, state="published" if number % 2 else "failed"))
    browser = await server.operator()
    first = (await browser.get("/?state=published")).text
    assert re.findall(r'<a href="([^"]+)" rel="(\w+)">', first) == [("/?state=published&amp;page=2", "next")]
    second = await list_runs(browser, state="published", page="2")
    assert second == [str(number) for number in range(101, 121, 2)]
    assert 'rel="prev">Newer' in (await browser.get("/?state=published&page=2")).text
    assert "60 runs" in first


async def test_statistics_cover_the_filtered_runs(
    server: DashboardServer, filled_list: httpx.AsyncClient
) -> None:
    counters = Counters(server.redis)
    for number, outcome in ((101, "untouched"), (102, "merged"), (103, "closed")):
        await counters.record_pull_outcome(Repo(owner="acme", name="calc"), number, outcome)  # type: ignore[arg-type]
    await counters.close()
    await server.runs.put(run_summary(9, pull_request=101))  # a run for a review of that pull request
    figures = re.findall(r"<dt>([\w -]+)</dt><dd><b>([^<]+)</b>", (await filled_list.get("/")).text)
    assert dict(figures) == {
        "Runs": "9",
        "Pull requests": "4",
        "Merged": "2",
        "Zero-touch": "1",
        "Cost": "≥ $2.12",
        "Per merge": "≥ $1.06",
        "Infrastructure": "87.5 %",
    }
    filtered = dict(
        re.findall(r"<dt>([\w -]+)</dt><dd><b>([^<]+)</b>", (await filled_list.get("/?text=issue 3")).text)
    )
    assert (filtered["Merged"], filtered["Per merge"], filtered["Cost"]) == ("0", "–", "$1.00")


async def test_a_cost_is_never_rounded_to_zero_and_not_shown_before_the_first_reply(
    server: DashboardServer,
) -> None:
    costs = (
        {"state": "queued"},
        {"steps": 1, "cost_usd": 0.004},
        {"steps": 1},
        {"steps": 1, "cost_usd": 0.075},
    )
    for number, cost in enumerate(costs):
        await server.runs.put(run_summary(number, **cost))
    page = (await (await server.operator()).get("/")).text
    assert sorted(re.findall(r'data-name="Cost"[^>]*>([^<]+)<', page)) == ["$0.00", "$0.0040", "$0.08", "–"]


async def test_an_unknown_cost_is_shown_with_its_tokens(server: DashboardServer) -> None:
    await server.runs.put(run_summary(1, pull_request=101, is_cost_known=False, tokens=12_345))
    counters = Counters(server.redis)
    await counters.record_pull_outcome(Repo(owner="acme", name="calc"), 101, "merged")
    await counters.close()
    page = (await (await server.operator()).get("/")).text
    assert re.findall(r"<dt>(Cost|Per merge)</dt><dd><b>([^<]+)</b>", page) == [
        ("Cost", "unknown"),
        ("Per merge", "unknown"),
    ]
    assert re.findall(r'data-name="Cost"[^>]*>([^<]+)<small>([^<]+)<', page) == [
        ("unknown ", "12,345 tokens")
    ]
    assert "of these runs; 1 at an unknown price, which does not count toward dollar limits" in page


async def test_each_statistic_has_an_explanation(filled_list: httpx.AsyncClient) -> None:
    page = (await filled_list.get("/")).text
    assert dict(re.findall(r"<dt>([\w -]+)</dt><dd><b>[^<]+</b> <small>([^<]+)</small>", page)) == {
        "Runs": "that match the filter",
        "Pull requests": "opened or updated",
        "Merged": "0 closed without a merge",
        "Zero-touch": "merged without commits by other people",
        "Cost": "of these runs; 1 at an unknown price, which does not count toward dollar limits",
        "Per merge": "total cost divided by merged pull requests",
        "Infrastructure": "of finished runs had no server, sandbox or GitHub failure",
    }


def test_failures_of_the_model_or_the_settings_are_no_infrastructure_failures() -> None:
    statistics, run = RunStatistics(), run_summary(1, state="running")
    for fault in (*EXTERNAL_FAULTS, "engine", "internal"):
        statistics.add(run.with_result(Failed.model_validate({"error": "It is down.", "fault": fault})))
    assert (statistics.finished, statistics.success_rate) == (4, 0.5)
    assert run.with_result(Failed(error="It is down.", fault="provider")).with_result(DONE).fault is None


def test_rates_of_an_empty_list_are_none() -> None:
    assert (RunStatistics().success_rate, RunStatistics().usd_per_merged) == (None, None)


async def test_a_queued_job_and_a_rejected_job_are_listed_with_their_titles(server: DashboardServer) -> None:
    snapshot = ThreadSnapshot(title="Show <fractions>", body="", taken_at=datetime.now(UTC))
    job = server.job("acme-calc-9-waiting", number=9).model_copy(update={"snapshot": snapshot})
    rejected = job.model_copy(update={"id": JobId("acme-calc-9-rejected")})
    await server.queue.put(job)
    log = run_of(JobCompleted(outcome=Rejected(explanation="No.")))
    await server.runs.put(summarize_log(rejected, log, is_running=False))
    browser = await server.operator()
    for state, run in (("queued", job), ("rejected", rejected)):
        page = (await browser.get(f"/?state={state}")).text
        assert f'/runs/{run.id}">Show &lt;fractions&gt;</a>' in page
        page = (await browser.get(f"/runs/{run.id}")).text
        url = f"{server.fake_github.server_url}/acme/calc/issues/9"
        assert f'href="{url}" rel="noopener noreferrer">Show &lt;fractions&gt; (acme/calc#9)</a>' in page


async def test_a_change_to_documentation_only_is_named_as_on_the_pull_request(
    server: DashboardServer,
) -> None:
    verdict = Verdict(kind="unproven", documentation_only=True)
    published = Published(url="", number=2, branch="b", draft=True, verdict=verdict)
    await server.runs.put(run_summary(1).with_result(published))
    page = (await (await server.operator()).get("/?verdict=unproven")).text
    assert '<span class="mark unproven">documentation only</span>' in page


async def test_a_rejected_model_key_is_shown_until_a_run_gets_a_reply(server: DashboardServer) -> None:
    async def read_health() -> list[tuple[str, str]]:
        page = (await operator.get("/")).text
        return re.findall(r'<dt>Model</dt><dd><span class="mark \w+">(\w+)</span> <small>([^<]*)', page)

    operator = await server.operator()
    failed = Failed(error="ModelAccessDenied: The provider rejects the API key (401).", fault="provider")
    assert await read_health() == []
    await server.runs.put(run_summary(3, steps=4))
    await server.runs.put(run_summary(2).with_result(failed))
    await server.runs.put(run_summary(1, state="running"))
    details = "the last run failed: The provider rejects the API key (401)."
    assert await read_health() == [("unhealthy", details)]
    await server.runs.put(run_summary(1, state="running", steps=1))
    assert await read_health() == [("healthy", "the last run got replies")]


async def test_a_job_that_waits_for_github_says_since_when_and_when_it_tries_again(
    server: DashboardServer,
) -> None:
    """The first run has running and is in the index. The second has not, and is only in the queue."""
    now = datetime.now(UTC).replace(hour=12, minute=3)
    wait = GitHubWait(since=now, next_try=now + timedelta(minutes=7))
    running, other = server.job("acme-calc-1", number=1), server.job("acme-calc-9-waiting", number=9)
    await server.runs.put(run_summary(1, state="running"))
    browser = await server.operator()
    sentence = "waits for GitHub since 12:03 UTC; next try 12:10"
    for job in (running, other):
        await server.queue.put(job)
        assert sentence not in (await browser.get(f"/runs/{job.id}")).text
        retry = Retry(delay_seconds=600, counts_as_try=False, github_wait=wait)
        await server.queue._records.write(JobRecord(job=job).with_next_try().with_result(retry))
        page = (await browser.get(f"/runs/{job.id}")).text
        assert sentence in page and 'class="mark queued">queued<' in page
    found = (await browser.get("/?state=queued")).text
    assert found.count(sentence) == 2


async def test_a_job_that_failed_and_waits_for_its_next_try_says_so(server: DashboardServer) -> None:
    job, browser = server.job("acme-calc-9-waiting", number=9), await server.operator()
    await server.queue.put(job)
    record = JobRecord(job=job).with_next_try().with_result(Retry(delay_seconds=600)).with_next_try()
    await server.queue._records.write(record.with_result(Retry(delay_seconds=600)))
    for path in ("/?state=queued", f"/runs/{job.id}"):
        assert "failed 2 times and waits for its next try" in (await browser.get(path)).text


async def test_only_the_operator_sees_the_details_of_component_health(server: DashboardServer) -> None:
    async def unreachable() -> None:
        raise EngineUnavailable("no engine answers at unix:///run/docker.sock")

    for machine in ("one", "two"):
        engine_health = EngineHealth(server.redis, machine)
        await engine_health.report()
        if machine == "two":
            with pytest.raises(EngineUnavailable):
                await report_after_sweep(unreachable, engine_health)()
        await engine_health.close()
    leader_lease = LeaderLease(server.redis)
    since = datetime.now(UTC) - timedelta(minutes=3)
    await leader_lease.record_failure(PollFailure(reason="no answer from GitHub", since=since))
    await leader_lease.close()
    await server.queue.put(server.job(str(JobId("acme-calc-9-waiting"))))
    operator = (await (await server.operator()).get("/")).text
    parts = re.findall(r'<dt>(\w+)</dt><dd><span class="mark \w+">([\w ]+)</span> <small>([^<]*)', operator)
    assert [(name, how) for name, how, _ in parts] == [
        ("Receiver", "healthy"),
        ("Redis", "healthy"),
        ("Workers", "unhealthy"),
        ("Queue", "healthy"),
        ("Engine", "unhealthy"),
        ("GitHub", "unhealthy"),
    ]
    failure = r"all polls have failed for 3 min( \d+ s)?: no answer from GitHub"
    assert re.fullmatch(failure, parts[5][2].strip())
    assert parts[5][2].endswith(": no answer from GitHub")
    assert parts[4][2] == "1 of 2 machines respond; two: no engine answers at unix:///run/docker.sock"
    assert parts[2][2] == "0 running"
    assert parts[3][2].startswith("0 running, 1 queued")
    reader = (await (await server.person("reader")).get("/")).text
    assert ("unhealthy" in reader, "0 running" in reader, "docker.sock" in reader) == (True, False, False)


async def test_invalid_signatures_and_a_full_redis_are_shown_as_unhealthy(
    server: DashboardServer,
) -> None:
    operator, redis = await server.operator(), redis_client(server.redis)

    async def receive(secret: str) -> None:
        digest = hmac.digest(secret.encode(), b"{}", "sha256").hex()
        signed = {"x-hub-signature-256": f"sha256={digest}", "x-github-event": "ping"}
        await server.browser().post("/webhook", content=b"{}", headers=signed)

    async def read_health() -> dict[str, tuple[str, str]]:
        page = (await operator.get("/")).text
        part = r'<dt>(Receiver|Redis)</dt><dd><span class="mark \w+">([\w ]+)</span> <small>([^<]*)'
        return {name: (how, figures) for name, how, figures in re.findall(part, page)}

    initial = await read_health()
    await receive("of-another-app")
    await redis.config_set("maxmemory", "1")
    broken = await read_health()
    await redis.config_set("maxmemory", "0")
    await receive("story-webhook-secret")
    restored = await read_health()
    await redis.aclose(close_connection_pool=True)
    assert initial == {
        "Receiver": ("healthy", "deliveries since the server started: 0"),
        "Redis": ("healthy", "unprocessed deliveries: 0"),
    }
    assert broken == {
        "Receiver": (
            "unhealthy",
            "deliveries since the server started: 1, none with a valid signature",
        ),
        "Redis": ("unhealthy", "writes fail"),
    }
    assert {name: how for name, (how, _) in restored.items()} == {"Receiver": "healthy", "Redis": "healthy"}


async def test_a_broken_redis_is_reported(server: DashboardServer) -> None:
    browser = await server.operator()
    redis = redis_client(server.redis)
    await redis.set("patchwright:runs", b"of another type")
    await redis.aclose(close_connection_pool=True)
    await server.queue.put(server.job("acme-calc-9-waiting"))
    answer = await browser.get("/runs/acme-calc-9-waiting")
    assert (answer.status_code, "Redis is not responding" in answer.text) == (503, True)
