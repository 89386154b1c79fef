"""The metrics of a server, read with Prometheus' own parser."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from patchwright.bot.faults import FAULTS
from patchwright.bot.jobs import Failed
from patchwright.bot.observe.metrics import MAX_LABEL_VALUES, MetricsSnapshot, render_metrics
from patchwright.bot.redis.counters import Counters
from patchwright.bot.redis.heartbeats import HEARTBEAT_TIMEOUT_SECONDS, WORKERS_KEY, Heartbeats
from patchwright.bot.run_summary import summarize_log
from patchwright.bot.usage_report import UsageReport, build_usage_report
from patchwright.resolver.domain import JobId, Published, Repo, RunId, Usage, Verdict
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import (
    AgentStopped,
    Entry,
    Message,
    ModelReply,
    ReplyUsage,
    Trajectory,
)
from patchwright.resolver.run_events import RunResumed, SubagentSpawned
from tests.bot.jobs import DONE
from tests.resolver.sample_runs import RUN, run_of, started

pytestmark = pytest.mark.redis

USAGE = Usage(usd="0.25", prompt_tokens=1000, completion_tokens=50, steps=4, seconds=95.0)
TOKENS = {("prompt", "openai/a model"): 1000, ("completion", "openai/a model"): 50}
EMPTY = MetricsSnapshot(deliveries={}, counts={}, inbox_size=0, jobs={}, oldest_job_seconds=0, workers=0)


def samples_of(snapshot: MetricsSnapshot) -> dict[tuple[str, ...], float]:
    """Returns each sample by its name without the prefix, and its label values in the order of the label
    names.
    """
    return {
        (sample.name.removeprefix("patchwright_"), *(value for _, value in sorted(sample.labels.items()))): (
            sample.value
        )
        for family in text_string_to_metric_families(render_metrics(snapshot).decode())
        for sample in family.samples
    }


async def scrape(counters: Counters, **changes: Any) -> dict[tuple[str, ...], float]:
    return samples_of(EMPTY.model_copy(update={"counts": await counters.fetch_counts(), **changes}))


async def test_the_result_of_a_job_is_counted_once_and_exported(url: str) -> None:
    counters = Counters(url)
    fixed = Published(
        url="https://f/1",
        number=8,
        draft=False,
        branch="b",
        verdict=Verdict(kind="fixed", reason="It passes."),
    )
    for _ in range(2):
        await counters.record_result(JobId("one"), fixed, UsageReport(usage=USAGE, tokens=TOKENS, repairs=2))
    await counters.record_result(
        JobId("two"), Failed(error="EngineUnavailable: It is gone.", fault="engine"), UsageReport()
    )
    samples = await scrape(
        counters,
        deliveries={("issues", "stored"): 3, ("other", "invalid signature"): 1},
        inbox_size=2,
        jobs={"queued": 1},
        oldest_job_seconds=12.5,
        workers=1,
    )
    await counters.close()
    expected = {
        ("deliveries_total", "issues", "stored"): 3,
        ("deliveries_total", "other", "invalid signature"): 1,
        ("inbox_deliveries",): 2,
        ("jobs", "queued"): 1,
        ("queue_oldest_seconds",): 12.5,
        ("workers",): 1,
        ("completed_jobs_total", "default", "published"): 1,
        ("completed_jobs_total", "default", "failed"): 1,
        ("job_failures_total", "EngineUnavailable", "engine", "default"): 1,
        ("verdicts_total", "default", "fixed"): 1,
        ("cost_dollars_total", "default"): 0.25,
        ("tokens_total", "prompt", "default", "openai/a model"): 1000,
        ("tokens_total", "completion", "default", "openai/a model"): 50,
        ("steps_total", "default"): 4,
        ("repairs_total", "default"): 2,
        ("run_seconds_bucket", "60", "default"): 0,
        ("run_seconds_bucket", "120", "default"): 1,
        ("run_seconds_bucket", "+Inf", "default"): 1,
        ("run_seconds_count", "default"): 1,
        ("run_seconds_sum", "default"): 95,
        ("infrastructure_success_ratio", "default"): 0.5,
        ("failures_per_thousand_jobs", "engine", "default"): 500,
    }
    assert {key: samples.get(key) for key in expected} == expected
    assert ("unpriced_runs_total", "default") not in samples


async def test_runs_that_did_not_solve_the_issue_are_counted_by_kind_of_failure(url: str) -> None:
    counters = Counters(url)
    for number, failure in enumerate(("looped", "looped", "gave_up", None)):
        report = UsageReport.model_validate({"failure": failure})
        await counters.record_result(JobId(f"run-{number}"), DONE, report)
    samples = await scrape(counters)
    await counters.close()
    counted = {key[1]: number for key, number in samples.items() if key[0] == "unsolved_runs_total"}
    assert counted == {"looped": 2, "gave_up": 1}


async def test_runs_of_partly_unknown_cost_are_counted(url: str) -> None:
    counters = Counters(url)
    await counters.record_result(JobId("known"), DONE, UsageReport(usage=USAGE))
    await counters.record_result(
        JobId("partly"), DONE, UsageReport(usage=USAGE.model_copy(update={"unpriced": True}))
    )
    samples = await scrape(counters)
    await counters.close()
    assert (samples["cost_dollars_total", "default"], samples["unpriced_runs_total", "default"]) == (0.5, 1)


async def test_every_fault_is_exported_and_provider_faults_do_not_lower_the_success_ratio(url: str) -> None:
    counters = Counters(url)
    for fault in FAULTS:
        failed = Failed(error=f"{fault.title()}Error: It is down.", fault=fault)
        await counters.record_result(JobId(fault), failed, UsageReport())
    await counters.record_result(JobId("no reply"), DONE, UsageReport(provider_failed=True))
    await counters.record_result(JobId("well"), DONE, UsageReport())
    samples = await scrape(counters)
    await counters.close()
    assert {key[1:3]: number for key, number in samples.items() if key[0] == "job_failures_total"} == {
        ("ModelError", "provider"): 1,
        **{(f"{fault.title()}Error", fault): 1 for fault in FAULTS},
    }
    assert samples["failures_per_thousand_jobs", "provider", "default"] == 200
    # six of ten are neither provider nor settings faults
    assert samples["infrastructure_success_ratio", "default"] == pytest.approx(0.4)


async def test_held_ci_repairs_and_closed_pull_requests_are_counted(url: str) -> None:
    counters = Counters(url)
    verdict = Verdict(kind="fixed", reason="It passes.")
    for number, ci in enumerate(("starts", "held", "held", "silent")):
        done = Published(url="https://f/1", number=8, draft=False, branch="b", verdict=verdict, ci_state=ci)
        await counters.record_result(JobId(f"job-{number}"), done, UsageReport(fixes_checks=ci == "silent"))
    repo = Repo(owner="acme", name="sample")
    await counters.record_pull_outcome(repo, 8, "closed")
    await counters.record_pull_outcome(repo, 8, "untouched")  # it was reopened
    samples = await scrape(counters)
    await counters.close()
    assert {key: value for key, value in samples.items() if key[0] in ("ci_total", "pulls")} == {
        ("ci_total", "hold", "default"): 2,
        ("ci_total", "repair", "default"): 1,
        ("pulls", "default", "untouched"): 1,
        ("pulls", "default", "closed"): 0,
    }


async def test_two_metrics_labels_are_counted_separately(url: str) -> None:
    default, canary = Counters(url), Counters(url, "canary")
    await default.record_result(JobId("one"), DONE, UsageReport())
    await canary.record_result(JobId("two"), Failed(error="SandboxLost: x", fault="sandbox"), UsageReport())
    samples = await scrape(default)
    for counters in (default, canary):
        await counters.close()
    assert samples["infrastructure_success_ratio", "default"] == 1
    assert samples["infrastructure_success_ratio", "canary"] == 0
    assert ("job_failures_total", "SandboxLost", "sandbox", "default") not in samples
    assert samples["job_failures_total", "SandboxLost", "sandbox", "canary"] == 1


def test_a_thousand_models_do_not_create_a_thousand_time_series() -> None:
    counts = {f"tokens prompt model-{number}": float(number) for number in range(1000)}
    samples = samples_of(EMPTY.model_copy(update={"counts": {"default": counts}}))
    shown = {key: number for key, number in samples.items() if key[0] == "tokens_total"}
    assert len(shown) == MAX_LABEL_VALUES + 1
    assert sum(shown.values()) == sum(range(1000))
    assert shown["tokens_total", "prompt", "default", "model-999"] == 999


def test_a_new_server_exports_valid_metrics() -> None:
    samples = samples_of(EMPTY)
    assert samples == {("inbox_deliveries",): 0, ("queue_oldest_seconds",): 0, ("workers",): 0}


def test_a_usage_report_counts_tokens_by_model_including_subagents() -> None:
    def model_reply(model: str, prompt: int) -> ModelReply:
        usage = ReplyUsage(model=model, prompt_tokens=prompt, cached_tokens=3, completion_tokens=2)
        return ModelReply(thought="", calls=(), usage=usage)

    def run(*events: Any) -> Trajectory:
        at = "2026-01-01T00:00:00Z"
        return Trajectory(tuple(Entry(seq=n, timestamp=at, event=event) for n, event in enumerate(events)))

    subagent = RunId("run-b")
    runs = {
        RunId("run"): run(
            model_reply("big", 10),
            SubagentSpawned(call_id="c", run=subagent, task="look"),
            Message(text="It fails.", source="verification"),
            model_reply("big", 20),
            AgentStopped(reason="error", detail="No reply."),
        ),
        subagent: run(model_reply("small", 5), SubagentSpawned(call_id="d", run=RunId("gone"), task="look")),
    }

    def read(name: RunId) -> Trajectory:
        if name not in runs:
            raise LogError("There is none.")
        return runs[name]

    report = build_usage_report(RunId("run"), read)
    assert report.tokens == {
        ("prompt", "big"): 30,
        ("cached", "big"): 6,
        ("completion", "big"): 4,
        ("prompt", "small"): 5,
        ("cached", "small"): 3,
        ("completion", "small"): 2,
    }
    assert (report.repairs, report.provider_failed, report.usage.steps) == (1, True, 2)
    assert build_usage_report(RunId("never begun"), read) == UsageReport()


def test_a_job_that_resumes_a_run_counts_only_its_own_part_of_the_work() -> None:
    def model_reply(tokens: int) -> ModelReply:
        usage = ReplyUsage(model="big", prompt_tokens=tokens, completion_tokens=0, usd="0.5")
        return ModelReply(thought="", calls=(), usage=usage)

    comment = Message(text="Also in b.", source="comment", trigger_id=JobId("comment"))
    resume = Message(text="Go on.", source="resume", trigger_id=JobId("second"))
    answer = Message(text="Up.", source="comment", trigger_id=JobId("third"))
    question = AgentStopped(reason="input_required", detail="Up or down?")
    operator = Message(text="Go on.", source="resume", trigger_id=RUN)
    work = run_of(
        *(started(), model_reply(1), comment, model_reply(2), resume, model_reply(10), question),
        *(answer, model_reply(100), operator, model_reply(1000)),
    )
    runs = {RUN: work} | {RunId(name): run_of(RunResumed(run=RUN)) for name in ("second", "third", "fourth")}
    for name, tokens in {"second": 10, "third": 100, "fourth": 0}.items():
        report = build_usage_report(RunId(name), runs.__getitem__)
        assert (report.usage.prompt_tokens, report.tokens.get(("prompt", "big"), 0)) == (tokens, tokens)
    job = work.run_started.job if work.run_started else None
    # The run is listed once, with the work of all its jobs.
    assert job is not None and summarize_log(job, work, is_running=False).tokens == 1113
    resumed = job.model_copy(update={"id": "second"})
    assert summarize_log(resumed, work, is_running=False).tokens == 10


async def test_live_workers_are_counted_and_dead_ones_removed(url: str) -> None:
    from patchwright.bot.redis.connection import redis_client

    heartbeats, redis = Heartbeats(url), redis_client(url)
    now, _ = await redis.time()
    await redis.zadd(
        WORKERS_KEY,
        {
            "alive": now,
            "late": now - HEARTBEAT_TIMEOUT_SECONDS + 3,
            "dead": now - HEARTBEAT_TIMEOUT_SECONDS - 1,
        },
    )
    assert await heartbeats.count_workers() == 2
    assert await redis.zrange(WORKERS_KEY, 0, -1) == [b"late", b"alive"]
    await heartbeats.close()
    await redis.aclose()
