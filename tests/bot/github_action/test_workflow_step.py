"""How a workflow step handles its event, and what it writes for the runner."""

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from patchwright.bot.github_action.operator_messages import annotation, escape_markdown
from patchwright.bot.github_action.step_report import OUTPUTS
from patchwright.bot.github_action.workflow_step import (
    UNKNOWN_PRICE,
    JobHandlers,
    ResolveJobCanceled,
    run_action,
)
from patchwright.bot.webhooks.triggers import Triggers
from patchwright.resolver.cost import MinimumCost
from patchwright.resolver.domain import Job, Outcome, Published, Rejected, Reported, Verdict
from patchwright.resolver.errors import Forbidden, ForgeError, ModelAccessDenied, SettingsError, WriteBlocked
from patchwright.resolver.events import Entry, ModelReply, ReplyUsage, Trajectory
from patchwright.runtime.errors import EngineUnavailable, ImageUnavailable
from tests.bot.deliveries import COMMENTED, LABELED, SENDER

FIXED = Verdict(kind="fixed", reason="test_add passes now.")
PUBLISHED = Published(
    url="https://forge.test/acme/sample/pull/8",
    number=8,
    branch="patchwright/issue-7",
    draft=False,
    verdict=FIXED,
)
REPORTED = Reported(
    url="https://forge.test/acme/sample/issues/7#c1",
    branch=None,
    reason="Nothing was changed.",
    verdict=Verdict(kind="empty"),
)
REJECTED = Rejected(explanation="Only people who may write here can ask.")


def log_of(usage: ReplyUsage) -> Trajectory:
    decided = ModelReply(thought="", calls=(), usage=usage)
    return Trajectory((Entry(seq=0, timestamp=datetime.now(UTC), event=decided),))


class Step:
    """A workflow step for an event, and its results."""

    def __init__(
        self, directory: Path, event: str = "issues", payload: object = LABELED, **environ: str
    ) -> None:
        self.output, self.summary = directory / "output", directory / "summary"
        (directory / "event.json").write_text(json.dumps(payload))
        self.environ: Mapping[str, str] = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": event,
            "GITHUB_EVENT_PATH": str(directory / "event.json"),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
        } | environ
        self.jobs: list[Job] = []
        self.lines: list[str] = []
        self.failures: list[str] = []
        self.saved_branch: str | None = None
        self.report_error: Exception | None = None
        self.log = log_of(
            ReplyUsage(model="m", prompt_tokens=900, completion_tokens=100, usd=Decimal("0.12"))
        )

    async def run(self, result: Outcome | BaseException, *, says: str = "", **options: Any) -> int:
        async def resolve(job: Job) -> Outcome:
            self.jobs.append(job)
            if says:
                self.lines.extend(says.splitlines())
            if isinstance(result, BaseException):
                raise result
            return result

        async def report_failure(job: Job, error: Exception) -> str | None:
            self.failures.append(str(error))
            if self.report_error:
                raise self.report_error
            return self.saved_branch

        return await run_action(
            self.environ,
            JobHandlers(resolve, report_failure, read_log=lambda job: self.log, **options),
            triggers=Triggers(),
            secrets=["tok%en", "line one\nline two\n"],
            write=self.lines.append,
        )

    def outputs(self) -> dict[str, str]:
        """The outputs, parsed as the runner does."""
        found = re.findall(r"^(.+?)<<(.+)\n((?s:.*?))\n\2\n", self.output.read_text(), re.MULTILINE)
        return {name: value for name, _, value in found}

    def commands(self) -> list[str]:
        """The lines that the runner executes as commands."""
        obeyed, stopped = [], ""
        for line in "\n".join(self.lines).split("\n"):
            if stopped:
                stopped = "" if line.strip() == f"::{stopped}::" else stopped
            elif line.lstrip().startswith("::stop-commands::"):
                stopped = line.partition("::stop-commands::")[2]
            elif line.lstrip().startswith("::") or "##[" in line:
                obeyed.append(line)
        assert not stopped, "commands stay off for the steps to come"
        return obeyed


async def test_a_published_pull_request_is_in_the_outputs_and_the_summary(tmp_path: Path) -> None:
    step = Step(tmp_path)
    assert await step.run(PUBLISHED) == 0
    assert [(str(job.repo), job.number, job.requester and job.requester.id) for job in step.jobs] == [
        ("acme/sample", 7, 5)
    ]
    assert step.outputs() == {
        "outcome": "published",
        "pull-request": "https://forge.test/acme/sample/pull/8",
        "branch": "patchwright/issue-7",
        "verdict": "fixed",
        "cost-usd": "0.12",
        "tokens": "1000",
        "run-page": "",
    }
    assert step.summary.read_text().startswith(
        "### acme/sample#7: published\n\n| | |\n|---|---|\n"
        "| Pull request | https://forge.test/acme/sample/pull/8 |\n"
        "| Verdict | fixed |\n"
        "| Reason | test\\_add passes now\\. |\n"
        "| Branch | patchwright\\/issue\\-7 |\n"
        "| Cost (USD) | 0.12 |\n"
        "| Tokens | 1000 |\n"
    )


@pytest.mark.parametrize(
    ("result", "code", "outcome"),
    [
        (REPORTED, 3, "reported"),
        (REJECTED, 4, "rejected"),
        (SettingsError("PATCHWRIGHT_MODEL is not set."), 2, "error"),
        (ModelAccessDenied("no such model"), 2, "error"),
        (Forbidden("the token may not push"), 2, "error"),
        (ForgeError("502"), 1, "error"),
        (EngineUnavailable("no engine"), 1, "error"),
        (ImageUnavailable("no image"), 2, "error"),
        (ExceptionGroup("tasks", [ForgeError("502")]), 1, "error"),
    ],
    ids=repr,
)
async def test_every_outcome_has_its_exit_code(
    tmp_path: Path, result: Outcome | Exception, code: int, outcome: str
) -> None:
    step = Step(tmp_path)
    assert await step.run(result) == code
    assert step.outputs()["outcome"] == outcome
    assert (len(step.failures) == 1) is isinstance(result, Exception)
    assert step.summary.read_text().startswith(f"### acme/sample#7: {outcome}\n")


async def test_the_log_says_why_there_is_no_pull_request_and_work_on_a_branch_is_a_warning(
    tmp_path: Path,
) -> None:
    for branch, warnings in ((None, 0), ("patchwright/issue-7", 1)):
        step = Step(tmp_path)
        await step.run(REPORTED.model_copy(update={"branch": branch, "reason": "Closed.\n::error::x"}))
        line = "acme/sample#7: reported: Closed.\n::error::x https://forge.test/acme/sample/issues/7#c1"
        assert line in step.lines
        shown = [command for command in step.commands() if not command.startswith("::add-mask::")]
        assert shown == [f"::warning::{line}".replace("\n", "%0A")] * warnings


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ForgeError("502"), "error"), (ResolveJobCanceled("The first job was canceled."), "stopped")],
)
async def test_the_branch_with_the_work_of_a_failed_run_is_in_the_outputs_and_the_summary(
    tmp_path: Path, error: Exception, outcome: str
) -> None:
    step = Step(tmp_path)
    step.saved_branch = "patchwright/issue-7-after-3-steps"
    assert await step.run(error) == 1
    assert (step.outputs()["outcome"], step.outputs()["branch"]) == (outcome, step.saved_branch)
    assert "| Branch | patchwright\\/issue\\-7\\-after\\-3\\-steps |" in step.summary.read_text()


@pytest.mark.parametrize("report_error", [None, ZeroDivisionError()])
async def test_a_canceled_step_names_its_branch(tmp_path: Path, report_error: Exception | None) -> None:
    step = Step(tmp_path)
    step.saved_branch, step.report_error = "patchwright/issue-7-after-3-steps", report_error
    with pytest.raises(asyncio.CancelledError):
        await step.run(asyncio.CancelledError())
    assert step.outputs()["outcome"] == "stopped"
    assert step.outputs()["branch"] == ("" if report_error else step.saved_branch)


async def test_an_internal_error_is_raised_and_commands_are_enabled_again(tmp_path: Path) -> None:
    step = Step(tmp_path)
    with pytest.raises(ZeroDivisionError):
        await step.run(ZeroDivisionError())
    with pytest.raises(ExceptionGroup):
        await step.run(ExceptionGroup("tasks", [ForgeError("502"), ZeroDivisionError()]))
    step.commands()


@pytest.mark.parametrize(
    ("event", "payload"),
    [
        ("push", {"ref": "refs/heads/main"}),
        ("issues", LABELED | {"label": {"name": "bug"}}),
        ("issue_comment", COMMENTED),
    ],
)
async def test_an_event_without_a_request_succeeds(tmp_path: Path, event: str, payload: object) -> None:
    step = Step(tmp_path, event, payload)
    assert await step.run(PUBLISHED) == 0
    assert step.jobs == []
    assert step.lines == [
        "Nothing to do: no request was found. In this event, no person added the label fix-me, or wrote @agent and a "
        "request."
    ]
    assert step.outputs() == {"outcome": "ignored"}


async def test_a_mention_passes_its_command(tmp_path: Path) -> None:
    step = Step(tmp_path, "issue_comment", COMMENTED | {"sender": SENDER})
    assert await step.run(PUBLISHED) == 0
    assert step.jobs[0].command == "go"


HOSTILE = (
    "\n::set-output name=x::y\n  ::add-path::/tmp\n##[add-mask]a\n::error::x\n::stop-commands::mine\n::mine::"
)


async def test_untrusted_text_is_never_a_workflow_command(tmp_path: Path) -> None:
    masks = ["::add-mask::line one", "::add-mask::line two", "::add-mask::tok%25en"]
    for result, annotations in ((REJECTED, []), (ForgeError(HOSTILE), [HOSTILE.replace("\n", "%0A")])):
        step = Step(tmp_path)
        await step.run(result, says=HOSTILE)
        assert sorted(step.commands()) == [*masks, *(f"::error::{text}" for text in annotations)]
    assert annotation("error", "50%\r\n::add-path::x") == "::error::50%25%0A::add-path::x"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "PATCHWRIGHT_MAX_USD: 'two' is not a number. Correct or remove it.",
            "input `max-usd`: 'two' is not a number. Correct or remove it.",
        ),
        (
            "PATCHWRIGHT_MODEL is not set. Set it or pass --model, for example a/b.",
            "input `model` is not set. Set it, for example a/b.",
        ),
        (
            "OPENAI_API_KEY is not set. Set it to your API key for openai/m, or set PATCHWRIGHT_MODEL_API_KEY.",
            "The input `model-api-key` is empty. Create the secret MODEL_API_KEY (Settings, Secrets and variables, "
            "Actions), pass it as this input, and remove and add the label again, or repeat your comment.",
        ),
        (
            "OPENAI_API_KEY is not set. Set it to your API key for openai/m, or set PATCHWRIGHT_MODEL_API_KEY (any "
            "text, if the endpoint needs no key).",
            "The input `model-api-key` is empty. Create the secret MODEL_API_KEY (Settings, Secrets and variables, "
            "Actions), pass it as this input, and remove and add the label again, or repeat your comment. If the "
            "endpoint needs no key, pass any text.",
        ),
    ],
)
async def test_a_message_about_a_setting_names_the_input(tmp_path: Path, message: str, expected: str) -> None:
    step = Step(tmp_path)
    assert await step.run(SettingsError(message)) == 2
    assert step.failures == [expected]
    assert f"::error::{expected[:1].upper()}{expected[1:]}" in step.commands()


@pytest.mark.parametrize(
    ("request_and_permission", "lines"),
    [
        ("POST /repos/a/b/pulls: {} (required permission: pull_requests=write)", "`pull-requests: write`"),
        ("POST /repos/a/b/issues/7/comments: {}", "`issues: write`"),
        ("{}", "`contents: write` or `issues: write` or `pull-requests: write`"),
    ],
)
async def test_a_missing_permission_names_the_line_of_the_workflow(
    tmp_path: Path, request_and_permission: str, lines: str
) -> None:
    step = Step(tmp_path)
    message = request_and_permission.format("GitHub returned 403: Resource not accessible by integration")
    assert await step.run(Forbidden(message)) == 2
    assert step.failures == [
        f"{message}. In the workflow file, add the line {lines} to the `permissions:` of the job."
    ]


async def test_outside_of_a_runner_no_secret_is_printed(tmp_path: Path) -> None:
    step = Step(tmp_path, GITHUB_ACTIONS="")
    await step.run(PUBLISHED)
    assert "tok" not in "".join(line for line in step.lines if "stop" not in line)
    assert step.commands() == []


async def test_untrusted_text_cannot_forge_outputs_or_table_cells(tmp_path: Path) -> None:
    step = Step(tmp_path)
    hostile = "x\nEOF\nadmin<<EOF\nyes\nEOF\n| <img src=//e.test> ![a](http://e.test/?q) `@all`"
    result = PUBLISHED.model_copy(
        update={"branch": hostile, "verdict": Verdict(kind="fixed", reason=hostile)}
    )
    await step.run(result)
    assert step.outputs()["branch"] == hostile
    assert set(step.outputs()) == set(OUTPUTS)
    assert [line.count(" | ") for line in step.summary.read_text().splitlines()[4:10]] == [1] * 6
    assert escape_markdown("| <b> ![a](http://e.test) `x`\n") == (
        "\\| \\<b\\> \\!\\[a\\]\\(http\\:\\/\\/e\\.test\\) \\`x\\`"
    )


async def test_an_unknown_cost_is_omitted(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.log = log_of(ReplyUsage(model="m"))
    await step.run(PUBLISHED)
    assert step.outputs()["cost-usd"] == "" and "Cost (USD)" not in step.summary.read_text()
    assert f"::warning::{UNKNOWN_PRICE}" in step.commands()


async def test_only_the_job_that_calls_the_model_warns_about_an_unknown_price(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.log = log_of(ReplyUsage(model="m"))
    await step.run(PUBLISHED, calls_model=False)
    assert not any(command.startswith("::warning::") for command in step.commands())


async def test_a_summary_without_values_has_no_table(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.log = Trajectory()
    await step.run(WriteBlocked("read only"))
    assert step.summary.read_text() == "### acme/sample#7: prepared\n"


@pytest.mark.parametrize("command", ["explain how it rounds", "setup"])
async def test_an_answer_and_a_proposed_configuration_have_no_verdict(tmp_path: Path, command: str) -> None:
    comment = COMMENTED["comment"] | {"body": f"@agent {command}"}
    step = Step(tmp_path, "issue_comment", COMMENTED | {"sender": SENDER, "comment": comment})
    for result in (REPORTED, PUBLISHED):
        await step.run(result)
        assert step.outputs()["verdict"] == ""
    assert "Verdict" not in step.summary.read_text()


async def test_a_cost_is_rounded_to_millionths_of_a_dollar(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.log = log_of(ReplyUsage(model="m", usd=Decimal("0.00262334999999999993")))
    await step.run(PUBLISHED)
    assert step.outputs()["cost-usd"] == "0.002623"
    assert "\n| Cost (USD) | 0.002623 |\n" in step.summary.read_text()


async def test_a_partly_known_cost_is_marked_in_the_summary(tmp_path: Path) -> None:
    step = Step(tmp_path)
    step.log = log_of(ReplyUsage(model="m", usd=MinimumCost(usd=Decimal("0.12"))))
    await step.run(PUBLISHED)
    assert step.outputs()["cost-usd"] == ""
    assert "\n| Cost (USD) | at least 0.12 |\n" in step.summary.read_text()


async def test_a_step_without_output_files_still_works(tmp_path: Path) -> None:
    step = Step(tmp_path, GITHUB_OUTPUT="", GITHUB_STEP_SUMMARY="")
    assert await step.run(PUBLISHED) == 0


@pytest.mark.parametrize(
    ("environ", "payload", "complaint"),
    [
        ({"GITHUB_EVENT_PATH": ""}, LABELED, "GITHUB_EVENT_PATH or GITHUB_EVENT_NAME is not set"),
        ({"GITHUB_EVENT_NAME": ""}, LABELED, "GITHUB_EVENT_PATH or GITHUB_EVENT_NAME is not set"),
        ({"GITHUB_EVENT_PATH": "/nowhere"}, LABELED, "EVENT_PATH, /nowhere: No such file or directory."),
        ({}, [], "GITHUB_EVENT_PATH is not a valid issues payload"),
        (
            {"GITHUB_REPOSITORY": "acme/other"},
            LABELED,
            "belongs to acme/sample, but this workflow runs in acme/other",
        ),
        ({}, "x" * 27 * 2**20, "has more than 27262976 bytes"),
    ],
)
async def test_a_missing_or_invalid_event_is_explained(
    tmp_path: Path, environ: dict[str, Any], payload: object, complaint: str
) -> None:
    with pytest.raises(SettingsError, match=complaint):
        await Step(tmp_path, payload=payload, **environ).run(PUBLISHED)
