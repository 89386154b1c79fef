"""What can be scraped of a server: by Prometheus' own parser, as Prometheus would read it."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bot.jobs import Failed
from bot.observe.account import account_of
from bot.observe.faults import FAULTS
from bot.observe.metrics import MOST_VALUES, Figures, exposition
from bot.redis.ledger import Account, Ledger
from bot.redis.presence import GONE_SECONDS, WORKERS, Presence
from resolver.domain import Delivered, JobId, Repo, RunId, Spent, Verdict
from resolver.errors import LogError
from resolver.events import Decided, Delegated, Ended, Entry, Told, Trajectory, Usage
from tests.bot.jobs import DONE

pytestmark = pytest.mark.redis

SPENT = Spent(usd="0.25", prompt_tokens=1000, completion_tokens=50, steps=4, seconds=95.0)
USED = {("prompt", "openai/a model"): 1000, ("completion", "openai/a model"): 50}
NOTHING = Figures(deliveries={}, counts={}, inbox=0, jobs={}, oldest_seconds=0, workers=0)


def scraped(figures: Figures) -> dict[tuple[str, ...], float]:
    """Each sample by its name without our prefix, and its labels' values in the order of their names."""
    return {
        (sample.name.removeprefix("patchwright_"), *(value for _, value in sorted(sample.labels.items()))): (
            sample.value
        )
        for family in text_string_to_metric_families(exposition(figures).decode())
        for sample in family.samples
    }


async def counted(ledger: Ledger, **but: Any) -> dict[tuple[str, ...], float]:
    return scraped(NOTHING.model_copy(update={"counts": await ledger.counts(), **but}))


async def test_what_a_job_came_to_is_counted_once_and_can_be_scraped(url: str) -> None:
    ledger = Ledger(url)
    fixed = Delivered(
        url="https://f/1",
        number=8,
        draft=False,
        branch="b",
        verdict=Verdict(kind="fixed", reason="It passes."),
    )
    for _ in range(2):
        await ledger.end(JobId("one"), fixed, Account(spent=SPENT, tokens=USED, repairs=2))
    await ledger.end(JobId("two"), Failed(error="the engine is gone", fault="engine"), Account())
    seen = await counted(
        ledger,
        deliveries={("issues", "stored"): 3, ("other", "forged"): 1},
        inbox=2,
        jobs={"queued": 1},
        oldest_seconds=12.5,
        workers=1,
    )
    await ledger.close()
    expected = {
        ("deliveries_total", "stored", "issues"): 3,
        ("deliveries_total", "forged", "other"): 1,
        ("inbox_deliveries",): 2,
        ("jobs", "queued"): 1,
        ("queue_oldest_seconds",): 12.5,
        ("workers",): 1,
        ("job_endings_total", "default", "delivered"): 1,
        ("job_endings_total", "default", "failed"): 1,
        ("job_failures_total", "default", "engine"): 1,
        ("verdicts_total", "default", "fixed"): 1,
        ("spent_dollars_total", "default"): 0.25,
        ("tokens_total", "default", "prompt", "openai/a model"): 1000,
        ("tokens_total", "default", "completion", "openai/a model"): 50,
        ("steps_total", "default"): 4,
        ("repairs_total", "default"): 2,
        ("run_seconds_bucket", "default", "60"): 0,
        ("run_seconds_bucket", "default", "120"): 1,
        ("run_seconds_bucket", "default", "+Inf"): 1,
        ("run_seconds_count", "default"): 1,
        ("run_seconds_sum", "default"): 95,
        ("infrastructure_success_ratio", "default"): 0.5,
        ("failures_per_thousand_jobs", "default", "engine"): 500,
    }
    assert {key: seen.get(key) for key in expected} == expected
    assert ("unpriced_runs_total", "default") not in seen


async def test_runs_whose_dollars_are_not_all_are_counted_beside_them(url: str) -> None:
    ledger = Ledger(url)
    await ledger.end(JobId("known"), DONE, Account(spent=SPENT))
    await ledger.end(JobId("partly"), DONE, Account(spent=SPENT.model_copy(update={"unpriced": True})))
    seen = await counted(ledger)
    await ledger.close()
    assert (seen["spent_dollars_total", "default"], seen["unpriced_runs_total", "default"]) == (0.5, 1)


async def test_every_class_of_failure_is_shown_and_a_providers_says_nothing_of_the_machine(url: str) -> None:
    ledger = Ledger(url)
    for fault in FAULTS:
        await ledger.end(JobId(fault), Failed(error="x", fault=fault), Account())
    await ledger.end(JobId("no reply"), DONE, Account(provider_failed=True))
    await ledger.end(JobId("well"), DONE, Account())
    seen = await counted(ledger)
    await ledger.close()
    assert {fault: seen["job_failures_total", "default", fault] for fault in FAULTS} == {
        fault: 2 if fault == "provider" else 1 for fault in FAULTS
    }
    assert seen["failures_per_thousand_jobs", "default", "provider"] == 200
    assert seen["infrastructure_success_ratio", "default"] == pytest.approx(0.4)  # six of ten were of ours


async def test_held_ci_repairs_and_closed_pull_requests_are_counted(url: str) -> None:
    ledger = Ledger(url)
    verdict = Verdict(kind="fixed", reason="It passes.")
    for number, ci in enumerate(("starts", "held", "held", "silent")):
        done = Delivered(url="https://f/1", number=8, draft=False, branch="b", verdict=verdict, ci=ci)
        await ledger.end(JobId(f"job-{number}"), done, Account(mends_checks=ci == "silent"))
    repo = Repo(owner="acme", name="sample")
    await ledger.outcome_of_pull(repo, 8, "closed")
    await ledger.outcome_of_pull(repo, 8, "untouched")  # it was opened again
    seen = await counted(ledger)
    await ledger.close()
    assert {key: value for key, value in seen.items() if key[0] in ("ci_total", "pulls")} == {
        ("ci_total", "default", "held"): 2,
        ("ci_total", "default", "repair"): 1,
        ("pulls", "untouched", "default"): 1,
        ("pulls", "closed", "default"): 0,
    }


async def test_two_configurations_side_by_side_are_counted_apart(url: str) -> None:
    usual, canary = Ledger(url), Ledger(url, "canary")
    await usual.end(JobId("one"), DONE, Account())
    await canary.end(JobId("two"), Failed(error="x", fault="sandbox"), Account())
    seen = await counted(usual)
    for ledger in (usual, canary):
        await ledger.close()
    assert seen["infrastructure_success_ratio", "default"] == 1
    assert seen["infrastructure_success_ratio", "canary"] == 0
    assert ("job_failures_total", "default", "sandbox") not in seen
    assert seen["job_failures_total", "canary", "sandbox"] == 1


def test_a_thousand_models_are_no_thousand_time_series() -> None:
    counts = {f"tokens prompt model-{number}": float(number) for number in range(1000)}
    seen = scraped(NOTHING.model_copy(update={"counts": {"default": counts}}))
    shown = {key: number for key, number in seen.items() if key[0] == "tokens_total"}
    assert len(shown) == MOST_VALUES + 1
    assert sum(shown.values()) == sum(range(1000))
    assert shown["tokens_total", "default", "prompt", "model-999"] == 999


def test_a_server_that_nobody_has_asked_shows_figures_that_can_be_read() -> None:
    seen = scraped(NOTHING)
    assert seen == {("inbox_deliveries",): 0, ("queue_oldest_seconds",): 0, ("workers",): 0}


def test_what_a_run_has_used_is_told_by_model_with_the_runs_that_it_asked_for() -> None:
    def decided(model: str, prompt: int) -> Decided:
        usage = Usage(model=model, prompt_tokens=prompt, cached_tokens=3, completion_tokens=2)
        return Decided(thought="", calls=(), usage=usage)

    def run(*events: Any) -> Trajectory:
        at = "2026-01-01T00:00:00Z"
        return Trajectory(tuple(Entry(seq=n, at=at, event=event) for n, event in enumerate(events)))

    helper = RunId("run-b")
    runs = {
        RunId("run"): run(
            decided("big", 10),
            Delegated(call="c", run=helper, task="look"),
            Told(text="It fails.", source="proof"),
            decided("big", 20),
            Ended(reason="error", detail="No reply."),
        ),
        helper: run(decided("small", 5), Delegated(call="d", run=RunId("gone"), task="look")),
    }

    def read(name: RunId) -> Trajectory:
        if name not in runs:
            raise LogError("There is none.")
        return runs[name]

    account = account_of(RunId("run"), read)
    assert account.tokens == {
        ("prompt", "big"): 30,
        ("cached", "big"): 6,
        ("completion", "big"): 4,
        ("prompt", "small"): 5,
        ("cached", "small"): 3,
        ("completion", "small"): 2,
    }
    assert (account.repairs, account.provider_failed, account.spent.steps) == (1, True, 2)
    assert account_of(RunId("never begun"), read) == Account()


async def test_workers_are_counted_at_a_glance_and_a_dead_one_is_forgotten(url: str) -> None:
    from bot.redis.client import redis_client

    presence, redis = Presence(url), redis_client(url)
    now, _ = await redis.time()
    await redis.zadd(WORKERS, {"alive": now, "late": now - GONE_SECONDS + 3, "dead": now - GONE_SECONDS - 1})
    assert await presence.workers() == 2
    assert await redis.zrange(WORKERS, 0, -1) == [b"late", b"alive"]
    await presence.close()
    await redis.aclose()
