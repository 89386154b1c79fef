"""Runs that ended before the first reply of the model."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.domain import Verdict
from patchwright.resolver.events import AgentStopped, VerificationCompleted
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.run_events import RunConfigured
from tests.bot.commands.test_inspect_commands import patchwright, store_log
from tests.resolver.sample_runs import run_of, started

CONFIGURED = RunConfigured(
    version="1", models={}, steps=100, seconds=0.001, usd=Decimal(2), settings={"mention": "@agent"}, repository={}
)  # fmt: skip
LIMIT = AgentStopped(reason="limit", detail="The time limit of 0.001 s is reached.")
ERROR = AgentStopped(reason="error", detail="The account has no credit.")


@pytest.mark.parametrize(
    ("stopped", "advice"),
    [
        (LIMIT, f"{LIMIT.detail} Raise PATCHWRIGHT_TIMEOUT, and run the first command again."),
        (ERROR, f"{ERROR.detail} Run the first command again."),
    ],
)
def test_a_run_without_a_reply_says_why_it_cannot_resume_and_what_to_do(
    tmp_path: Path, stopped: AgentStopped, advice: str
) -> None:
    local = started().model_copy(update={"source": str(tmp_path)})
    store_log(tmp_path, "calc-1", run_of(local, CONFIGURED, stopped))
    result = patchwright(tmp_path, "resolve", "--continue", "calc-1", "--model", "m")
    assert (result.returncode, result.stderr) == (
        2,
        f"patchwright: The run calc-1 ended before the model replied, so there is nothing to resume. {advice}\n",
    )


def test_a_comment_offers_to_resume_only_a_run_with_a_reply() -> None:
    summary = summarize_run(run_of(started(), CONFIGURED, LIMIT))
    text = render_reply(
        "no_pull_request.md.j2",
        reason="r",
        branch=None,
        verdict=Verdict(kind="empty"),
        summary=summary,
        pasted_patch="",
        advice="",
    )
    assert "comment `@agent resume`" not in text
    assert "ask the operator to raise the setting `timeout`, and comment `@agent retry`." in text


def test_verdicts_are_named_as_in_the_dashboard(tmp_path: Path) -> None:
    for verdict in (Verdict(kind="empty"), Verdict(kind="unproven", documentation_only=True)):
        store_log(tmp_path, verdict.kind, run_of(started(), VerificationCompleted(verdict=verdict)))
    listed = {line.split()[0]: line for line in patchwright(tmp_path, "runs").stdout.splitlines()}
    assert "  no change  " in listed["empty"] and "  documentation only  " in listed["unproven"]
    (run,) = json.loads(patchwright(tmp_path, "runs", "--verdict", "empty", "--json").stdout)["runs"]
    assert run["verdict"] == "empty"
