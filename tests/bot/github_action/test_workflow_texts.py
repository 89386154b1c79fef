"""In a workflow, comments promise only what works there: no later run can read the log of an earlier one."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from patchwright.bot.github_action.operator_messages import word_for_workflow
from patchwright.resolver.activity.summary import Summary, find_reached_setting, summarize_run
from patchwright.resolver.ci.ci_hold import CiHold
from patchwright.resolver.command_parser import RunOptions
from patchwright.resolver.comment_commands import COMMANDS
from patchwright.resolver.domain import InputRequired, JobId, SalvagedWork, Usage, Verdict
from patchwright.resolver.errors import ModelAccessDenied, ModelConnectionFailed, WriteBlocked
from patchwright.resolver.events import (
    AgentStopped,
    Entry,
    Message,
    ModelReply,
    ReplyUsage,
    ToolCall,
    Trajectory,
)
from patchwright.resolver.llm.provider_errors import rejected_key
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.request.plan_texts import render_explanation, render_plan
from patchwright.resolver.run_events import RunConfigured
from patchwright.resolver.tool_actions.control_actions import ProposePlan
from patchwright.runtime.actions import RunShell
from patchwright.runtime.docker.build_log import pull_error
from patchwright.runtime.errors import ImageUnavailable
from tests.bot.deliveries import COMMENTED, SENDER
from tests.bot.github_action.test_workflow_step import PUBLISHED, REPORTED, Step
from tests.resolver.sample_runs import run_of, shell_result, started
from tests.resolver.sample_runs import step as a_step

PLAN = ProposePlan(cause="It rounds.", steps=("Round up.",), test_plan="Run it.", risks="None.")


def summary(**settings: str) -> Summary:
    configured = RunConfigured(
        version="1", models={}, steps=1, seconds=1, usd=Decimal(1), settings=settings, repository={}
    )
    return Summary(
        finish=None,
        stop_detail="",
        steps=(),
        usage=Usage(),
        model="m",
        sandbox="docker",
        configuration=configured,
    )


def test_only_a_server_promises_that_go_carries_out_the_plan() -> None:
    assert "comment `@agent go`" in render_plan(PLAN, summary())
    in_workflow = render_plan(PLAN, summary(workflow_url="https://github.test/runs/1"))
    assert "`@agent go`" not in in_workflow
    assert (
        "To carry out the plan, comment `@agent` with the steps that you want. A later workflow run does not know this "
        "plan, so copy them from here."
    ) in in_workflow


def test_a_workflow_names_the_permission_that_it_needs_to_continue_after_an_answer() -> None:
    def ask(**settings: str) -> str:
        return render_reply("question.md.j2", question="Up?", summary=summary(**settings))

    assert "I then continue from where I stopped; my changes so far are saved." in ask()
    assert (
        "**To answer**, write a comment that starts with `@agent` and contains the answer. If the workflow has the "
        "permission `actions: read`, I then continue from where I stopped.\n"
    ) in ask(workflow_url="https://github.test/runs/1")


@pytest.mark.parametrize("is_permanent", [True, False])
def test_only_a_server_promises_to_resume_a_run_that_reached_a_limit(is_permanent: bool) -> None:
    settings = {} if is_permanent else {"workflow_url": "https://github.test/runs/1"}
    stopped = summary(mention="@agent", **settings).model_copy(
        update={"stopped_early": True, "stop_detail": "The limit is reached.", "usage": Usage(steps=3)}
    )
    no_pull_request = render_reply(
        "no_pull_request.md.j2",
        reason="no test passes.",
        branch=None,
        verdict=Verdict(kind="regressed"),
        summary=stopped,
        pasted_patch="",
        advice="",
    )
    salvaged = render_reply(
        "salvaged.md.j2",
        reason="it failed.",
        work=SalvagedWork(),
        verdict=None,
        summary=stopped,
        run="run",
        mention="@agent",
        is_permanent=is_permanent,
    )
    explanation = render_explanation(None, stopped)
    for text in (no_pull_request, salvaged, explanation):
        assert ("`@agent resume`" in text) is is_permanent
        assert (
            "I cannot resume this run, because a later workflow run cannot read its log." in text
        ) is not is_permanent
    if not is_permanent:
        for text in (no_pull_request, salvaged, explanation):
            assert "**To start over,** comment `@agent retry`." in text


@pytest.mark.parametrize(
    ("steps", "usd", "option", "reached"),
    [
        (2, "0.01", None, "max_steps"),
        (1, "0.20", None, "max_usd"),
        (1, "0.20", "0.20", None),
        (1, "0.01", None, "timeout"),
    ],
)
def test_the_summary_names_the_setting_whose_limit_ended_the_run(
    steps: int, usd: str, option: str | None, reached: str | None
) -> None:
    configured = RunConfigured(
        version="1", models={}, steps=2, seconds=9, usd=Decimal("0.20"), settings={}, repository={}
    )
    reply = ModelReply(thought="", calls=(), usage=ReplyUsage(model="m", usd=Decimal(usd)))
    options = RunOptions(usd=Decimal(option) if option else None)
    stopped = AgentStopped(reason="limit", detail="The limit is reached.")
    events = (
        configured,
        Message(text="", source="comment", trigger_id=JobId("1"), options=options),
        *[reply] * steps,
        stopped,
    )
    start = datetime.now(UTC)
    entries = (
        Entry(seq=at, timestamp=start + timedelta(seconds=5 * at), event=event)
        for at, event in enumerate(events)
    )
    assert find_reached_setting(Trajectory(tuple(entries))) == reached


def test_a_limit_after_some_replies_names_the_input_of_the_workflow() -> None:
    stopped = summary(mention="@agent", workflow_url="https://github.test/runs/1").model_copy(
        update={"stopped_early": True, "reached_setting": "max_steps", "usage": Usage(steps=3)}
    )
    text = render_explanation(None, stopped)
    assert "**To start over,** raise `max-steps` in the workflow file, and comment `@agent retry`." in text


def test_the_limits_before_the_first_reply_promise_no_dollar_limit_for_an_unknown_price() -> None:
    text = render_reply("question.md.j2", question="Up?", summary=summary())
    assert "$1 (if the model's price is known)" in text


def test_a_limit_before_the_first_reply_names_the_input_of_the_workflow() -> None:
    stopped = summary(mention="@agent", workflow_url="https://github.test/runs/1").model_copy(
        update={"stopped_early": True, "reached_setting": "max_usd"}
    )
    text = render_reply(
        "no_pull_request.md.j2",
        reason="nothing changed.",
        branch=None,
        verdict=Verdict(kind="empty"),
        summary=stopped,
        pasted_patch="",
        advice="",
    )
    assert "raise `max-usd` in the workflow file, and comment `@agent retry`." in text
    assert "operator" not in text


def test_the_help_lists_only_what_works() -> None:
    listed = set(
        re.findall(
            r"^\| `@agent ([a-z-]+)`",
            render_reply(
                "help.md.j2", commands=COMMANDS, mention="@agent", label="fix-me", in_workflow=False
            ),
            re.MULTILINE,
        )
    )
    in_workflow = render_reply(
        "help.md.j2",
        commands=COMMANDS,
        mention="@agent",
        label="fix-me",
        in_workflow=True,
        workflow_runs_url="https://github.test/a/b/actions",
    )
    assert listed - set(re.findall(r"^\| `@agent ([a-z-]+)`", in_workflow, re.MULTILINE)) == {
        "go",
        "approve",
        "reject",
        "stop",
        "resume",
    }
    assert (
        "To stop a run, cancel its workflow run in [the list of workflow runs](https://github.test/a/b/actions)."
        in in_workflow
    )


@pytest.mark.parametrize("command", ["stop", "resume", "go", "approve", "reject", "retry"])
def test_the_page_about_commands_says_how_a_workflow_differs(command: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()
    section = page.partition("## In a workflow\n")[2].partition("\n## ")[0]
    assert f"`@agent {command}`" in section
    (row,) = re.findall(rf"^\| `@agent {command}` \|.*$", page.replace(section, ""), re.MULTILINE)
    assert command in ("go", "retry") or "(#in-a-workflow)" in row


@pytest.mark.parametrize("kind", [ModelAccessDenied, ModelConnectionFailed])
def test_errors_of_the_model_name_the_inputs(kind: type[Exception]) -> None:
    error = word_for_workflow(kind("Check PATCHWRIGHT_MODEL and PATCHWRIGHT_MODEL_BASE_URL."))
    assert (type(error), str(error)) == (kind, "Check input `model` and input `model-base-url`.")


def test_the_job_summary_says_which_limit_ended_the_work() -> None:
    ended = summary().model_copy(
        update={"stopped_early": True, "stop_detail": "The limit of $2.00 is reached."}
    )
    text = render_reply("job_summary.md.j2", verdict=Verdict(kind="unproven"), summary=ended)
    assert "**Stopped early:**" in text and "2.00 is reached" in text.replace("\\", "")
    assert "This is the work up to that point." in text
    assert "work up to that point" not in render_reply(
        "job_summary.md.j2", verdict=Verdict(kind="empty"), summary=ended
    )
    assert "Stopped early" not in render_reply(
        "job_summary.md.j2", verdict=Verdict(kind="unproven"), summary=summary()
    )


def test_the_notice_about_ci_says_who_starts_it_and_that_a_strangers_text_was_read() -> None:
    plain = CiHold(state="silent").render_notice("@agent")
    assert plain == (
        "GitHub starts no workflows for commits that are pushed with `GITHUB_TOKEN`. To run the workflows, someone "
        "with write access closes and reopens this pull request, or pushes a commit to its branch. If I use the token "
        "of a GitHub App or a personal access token, workflows start automatically."
    )
    warned = CiHold(state="silent", outsiders=("stranger",)).render_notice("@agent")
    assert "The agent read text by stranger, who has no write access, so review the change first." in warned


def test_no_reply_asks_for_a_review_because_the_first_workflow_starts_on_comments_only() -> None:
    examples = Path(__file__).parents[3] / ".github" / "examples"
    assert "pull_request_review" not in (examples / "label.yml").read_text()
    replies = Path(__file__).parents[3] / "templates" / "replies"
    assert [path.name for path in replies.iterdir() if "in a review" in path.read_text()] == []


async def test_the_job_summary_does_not_call_a_plan_a_question(tmp_path: Path) -> None:
    step = Step(tmp_path)
    stopped = AgentStopped(reason="input_required", detail="The plan of 1 step is ready for review.")
    plan = ModelReply(thought="", calls=(ToolCall(id="1", action=PLAN),), usage=ReplyUsage(model="m"))
    step.log = Trajectory(
        tuple(
            Entry(seq=at, timestamp=datetime.now(UTC), event=event)
            for at, event in enumerate((plan, stopped))
        )
    )
    assert await step.run(InputRequired(url="https://forge.test/c1", question=stopped.detail)) == 6
    assert "| Plan | The plan of 1 step is ready for review\\. |" in step.summary.read_text()
    assert "Question" not in step.summary.read_text()


def test_the_job_summary_of_a_run_without_a_verdict_has_the_cost() -> None:
    text = render_reply("job_summary.md.j2", verdict=None, summary=summary())
    assert text.strip().startswith("0 steps of `m` ·")


async def test_an_error_that_ends_the_work_is_a_warning_and_names_the_input(tmp_path: Path) -> None:
    stopped = AgentStopped(reason="error", detail="The model failed (500): check PATCHWRIGHT_MODEL_BASE_URL.")
    warning = "::warning::The model failed (500): check input `model-base-url`."
    for calls_model in (True, False):
        step = Step(tmp_path)
        step.log = Trajectory((*step.log.entries, Entry(seq=1, timestamp=datetime.now(UTC), event=stopped)))
        await step.run(REPORTED, calls_model=calls_model)
        assert (warning in step.commands()) is calls_model
        await step.run(WriteBlocked("read only"), calls_model=calls_model)
        assert step.commands().count(warning) == 2 * calls_model


async def test_the_job_summary_says_nothing_twice(tmp_path: Path) -> None:
    step = Step(tmp_path)
    stopped = AgentStopped(reason="error", detail="The model failed (500): check PATCHWRIGHT_MODEL_BASE_URL.")
    url = "http://127.0.0.1:3000/acme/sample/actions/runs/1"
    configured = summary(workflow_url=url).configuration
    assert configured is not None
    reply = ModelReply(thought="", calls=(), usage=ReplyUsage(model="m", usd=Decimal("0.12")))
    step.log = run_of(started(), configured, reply, stopped)
    ended = summarize_run(step.log)
    assert ended.stop_detail == "The model failed (500): check input `model-base-url`."
    check = render_reply("check_summary.md.j2", verdict=Verdict(kind="empty"), summary=ended)
    assert url in check and "own machine" not in check
    await step.run(REPORTED.model_copy(update={"reason": f"Nothing changed. {ended.stop_detail}"}))
    text = step.summary.read_text()
    assert text.replace("\\", "").count("The model failed (500)") == 1
    assert (text.count("0.12"), "Tokens" in text, url in text) == (1, False, False)


async def test_the_job_summary_of_a_canceled_run_says_what_was_done_and_how_to_continue(
    tmp_path: Path,
) -> None:
    step = Step(tmp_path)
    step.saved_branch = "patchwright/issue-7-after-1-steps"
    configured = summary(workflow_url="https://github.test/runs/1", mention="@agent").configuration
    assert configured is not None
    step.log = run_of(started(), configured, *a_step("a", RunShell(command="make"), shell_result("done")))
    with pytest.raises(asyncio.CancelledError):
        await step.run(asyncio.CancelledError())
    assert step.summary.read_text().strip() == (
        "### acme/sample#7: stopped\n\n| | |\n|---|---|\n"
        "| Reason | The workflow was canceled\\. |\n"
        "| Branch | patchwright\\/issue\\-7\\-after\\-1\\-steps |\n\n"
        "1 step of `vendor/model-1` · $0.0100 · 1,050 tokens · working time 2.0 s · docker sandbox\n\n"
        "I cannot resume this run, because a later workflow run cannot read its log. "
        "**To start over,** comment `@agent retry`.\n\n"
        "<details><summary>How the agent worked: 1 step</summary>\n\n"
        "- **1** `$ make`: exit code 0: done\n\nCalls: run shell 1 (100 %)\n\n</details>"
    )


async def test_an_invalid_image_names_the_input(tmp_path: Path) -> None:
    step = Step(tmp_path)
    await step.run(ImageUnavailable(pull_error("nowhere:1", "not found")))
    assert step.failures == [
        "the base image nowhere:1 is not available and cannot be pulled (not found). Check the input `image`."
    ]
    assert (
        "| Error | The base image nowhere\\:1 is not available and cannot be pulled "
        in step.summary.read_text()
    )


async def test_the_summary_of_a_command_says_where_the_reply_is(tmp_path: Path) -> None:
    async def handle_command(_: object) -> bool:
        return True

    step = Step(tmp_path, "issue_comment", COMMENTED | {"sender": SENDER})
    assert await step.run(PUBLISHED, handle_command=handle_command) == 0
    text = step.summary.read_text()
    assert "| Command | go |" in text and "| Reply in | https://github.com/acme/sample/issues/7 |" in text


async def test_the_summary_of_an_invalid_command_says_why_nothing_was_done(tmp_path: Path) -> None:
    async def handle_command(_: object) -> str:
        return "I do not know the option `modle`."

    step = Step(tmp_path, "issue_comment", COMMENTED | {"sender": SENDER})
    assert await step.run(PUBLISHED, handle_command=handle_command) == 0
    text = step.summary.read_text()
    assert "| Reason | I do not know the option \\`modle\\`\\. |" in text and "| Command |" not in text


async def test_a_rejected_key_is_the_secret_that_the_input_passes(tmp_path: Path) -> None:
    step = Step(tmp_path)
    await step.run(rejected_key("vendor/model", 401))
    assert step.failures == [
        "The provider of vendor/model rejects the API key (401): check the secret that the input "
        "`model-api-key` passes."
    ]
