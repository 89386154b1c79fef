"""Handles one event in a GitHub Actions workflow, and writes step outputs and a job summary.

Source: docs.github.com/actions/reference/workflows-and-actions/workflow-commands and .../variables
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import TypeAlias, assert_never

from patchwright.bot.github_action.operator_messages import annotation, escape_markdown, word_for_workflow
from patchwright.bot.github_action.step_report import OUTPUTS, JobReport, format_sentence, write_outputs
from patchwright.bot.job_runner import JobCanceled, JobResolver, unwrap_exception_group
from patchwright.bot.webhooks.delivery import Delivery, IgnoredEvent, UnreadableDelivery, parse_delivery
from patchwright.bot.webhooks.triggers import TriggerRequest, Triggers, find_request
from patchwright.resolver.domain import InputRequired, Job, Outcome, Published, Rejected, Reported
from patchwright.resolver.errors import (
    Forbidden,
    ModelAccessDenied,
    NotFound,
    ResolverError,
    SettingsError,
    Unauthorized,
    WriteBlocked,
)
from patchwright.resolver.events import Trajectory
from patchwright.runtime.errors import ImageUnavailable, SandboxError

Writer: TypeAlias = Callable[[str], object]
FailureReporter: TypeAlias = Callable[[Job, Exception], Awaitable[str | None]]
"""Reports a failed job on GitHub. Returns the branch with the saved work, or None if there is none."""

MAX_EVENT_BYTES = 26 * 2**20  # maximum bytes of the event; GitHub sends webhook payloads of at most 25 MB

CANCEL_TIMEOUT_SECONDS = 7.0
"""Time limit for reporting that the workflow was canceled. The runner kills the process soon after this time.

Source: docs.github.com/actions/reference/workflows-and-actions/workflow-cancellation
"""

CANCELED = "The workflow was canceled."

OPERATOR_ERRORS = (SettingsError, ModelAccessDenied, NotFound, Unauthorized, Forbidden, ImageUnavailable)
"""Errors that a retry cannot fix, because the operator must change something."""

UNKNOWN_PRICE = (
    "The price of a model is unknown, so the input `max-usd` did not limit its cost. To limit it, set "
    "PATCHWRIGHT_MAX_TOKENS in the `env` of the job."
)


CommandHandler: TypeAlias = Callable[[TriggerRequest], Awaitable[bool | str]]
"""Executes a command that needs no run. Returns False if the request needs a run, and the explanation if the command
was rejected. May raise ForgeError.
"""


class ResolveJobCanceled(ResolverError):
    """The job that works on the request was canceled. The job that publishes saves the work."""


def write_no_view(job: Job) -> None:
    """Writes nothing, for jobs that need no HTML view."""


@dataclass(frozen=True)
class JobHandlers:
    """What a workflow step does with a job."""

    resolve: JobResolver
    report_failure: FailureReporter
    read_log: Callable[[Job], Trajectory]
    handle_command: CommandHandler | None = None
    write_view: Callable[[Job], Path | None] = write_no_view
    """Writes the run as an HTML file."""
    calls_model: bool = True
    """False for the publish job, so that only the job that called the model describes the run and its cost."""


async def run_action(
    environ: Mapping[str, str],
    handlers: JobHandlers,
    *,
    triggers: Triggers,
    missed_delivery: Delivery | None = None,
    secrets: Iterable[str] = (),
    write: Writer = lambda line: print(line, flush=True),
) -> int:
    """Handles the event in `environ` (GITHUB_EVENT_PATH, GITHUB_EVENT_NAME) and returns the exit code.

    Exit codes:
    - 0: published, prepared for the publish job, answered by `handle_command`, or nothing to do
    - 1: an internal error
    - 2: an error that the operator must fix
    - 3: reported in a comment
    - 4: rejected
    - 6: input required

    Writes outputs to GITHUB_OUTPUT and a summary to GITHUB_STEP_SUMMARY, if these variables are set. If
    `missed_delivery` is not None, handles this delivery instead of the event. Raises SettingsError if there is no
    event.
    """
    delivery = missed_delivery or read_event(environ)
    if (request := find_request(delivery, triggers)) is None:
        if isinstance(delivery, IgnoredEvent) and delivery.reason:
            write(delivery.reason)
        else:
            write(
                f"Nothing to do: no request was found. In this event, no person added the label {triggers.label}, "
                f"or wrote {triggers.mention} and a request."
            )
        write_outputs(environ, {"outcome": "ignored"}, "")
        return 0
    # Outside GitHub Actions, this output would show the secrets instead of masking them.
    if _is_runner(environ):
        _mask_secrets(secrets, write)
    report = JobReport(environ, request.job, handlers.read_log, handlers.write_view, handlers.calls_model)
    step = _StepRun(handlers, report, write)
    with contextlib.ExitStack() as stack:
        # These lines are annotations, so they are written when workflow commands are enabled again.
        stack.callback(
            lambda: _write_annotations(
                environ,
                step.errors,
                step.warnings,
                step.report.trajectory if handlers.calls_model else Trajectory(),
                write,
            )
        )
        stack.enter_context(_disable_commands(write))
        return await step.run(request)


@dataclass
class _StepRun:
    """Works on one job and reports its result."""

    handlers: JobHandlers
    report: "JobReport"
    write: Writer
    errors: list[Exception] = field(default_factory=list)
    """Shown as annotations at the end of the step, like `warnings`."""
    warnings: list[str] = field(default_factory=list)

    async def run(self, request: TriggerRequest) -> int:
        """Returns the exit code."""
        job = request.job
        try:
            if self.handlers.handle_command and (answered := await self.handlers.handle_command(request)):
                self.report.report_answered(answered if isinstance(answered, str) else "")
                return 0
            outcome = await self.handlers.resolve(job)
        except WriteBlocked:
            self.report.report_prepared()
            self._warn_about_failure()
            self.write(f"{job.repo}#{job.number}: prepared for the publish job")
            return 0
        except asyncio.CancelledError:
            # The runner kills the process 10 s after its signal. The report has its own task, because a
            # canceled task may be canceled again.
            reporting = asyncio.create_task(self._report_failure(job, JobCanceled(CANCELED)))
            await asyncio.wait((reporting,), timeout=CANCEL_TIMEOUT_SECONDS)
            is_reported = reporting.done() and not reporting.cancelled() and reporting.exception() is None
            branch = reporting.result() if is_reported else ""
            self.report.report("stopped", values={"branch": branch})
            raise
        except (ResolverError, SandboxError, ExceptionGroup) as exc:
            error = unwrap_exception_group(exc)
            if not isinstance(error, ResolverError | SandboxError):
                raise
            error = word_for_workflow(error)
            self.errors.append(error)
            branch = await self._report_failure(job, error)
            kind = "stopped" if isinstance(error, ResolveJobCanceled) else "error"
            self.report.report(kind, {"Error": format_sentence(str(error))}, {"branch": branch})
            return error_exit_code(error)
        self.report.report_outcome(outcome)
        self.write(_describe(job, outcome))
        if isinstance(outcome, Reported) and outcome.branch:
            self.warnings.append(_describe(job, outcome))
        else:
            self._warn_about_failure()
        return exit_code(outcome)

    def _warn_about_failure(self) -> None:
        """Adds a warning if an error, such as a failure of the model's provider, ended the agent's work."""
        stopped = self.report.trajectory.agent_stopped
        if self.handlers.calls_model and stopped and stopped.reason == "error":
            self.warnings.append(str(word_for_workflow(ResolverError(stopped.detail))))

    async def _report_failure(self, job: Job, error: Exception) -> str:
        """Reports the failure in the issue or pull request. Returns the branch with the saved work, or "". If the
        report fails, adds the new error to `errors`.
        """
        try:
            return await self.handlers.report_failure(job, error) or ""
        except (ResolverError, OSError) as exc:  # The job may have failed because the forge is unavailable.
            self.errors.append(
                ResolverError(f"The failure could not be reported in the issue: {word_for_workflow(exc)}")
            )
            return ""


def report_early_error(environ: Mapping[str, str], error: Exception) -> int:
    """Reports an error that ended the step before its job was known. Returns the exit code."""
    error = word_for_workflow(error)
    _write_error(environ, error, lambda line: print(line, flush=True))
    summary = f"### Patchwright: error\n\n{escape_markdown(str(error))}\n"
    write_outputs(environ, dict.fromkeys(OUTPUTS, "") | {"outcome": "error"}, summary)
    return error_exit_code(error)


def error_exit_code(error: Exception) -> int:
    return 2 if isinstance(error, OPERATOR_ERRORS) else 1


def exit_code(outcome: Outcome) -> int:
    match outcome:
        case Published():
            return 0
        case Reported():
            return 3
        case Rejected():
            return 4
        case InputRequired():
            return 6
        case _:
            assert_never(outcome)


def read_event(environ: Mapping[str, str]) -> Delivery:
    """Returns the event that started the workflow. Raises SettingsError if the event is unreadable or belongs
    to another repository.
    """
    path, name = environ.get("GITHUB_EVENT_PATH"), environ.get("GITHUB_EVENT_NAME")
    if not path or not name:
        raise SettingsError(
            "GITHUB_EVENT_PATH or GITHUB_EVENT_NAME is not set. Run this command in a GitHub Actions workflow."
        )
    try:
        with Path(path).open("rb") as file:
            body = file.read(MAX_EVENT_BYTES + 1)
        if len(body) > MAX_EVENT_BYTES:
            raise SettingsError(
                f"GITHUB_EVENT_PATH has more than {MAX_EVENT_BYTES} bytes, so it is not a GitHub event."
            )
        delivery = parse_delivery(name, body)
    except OSError as exc:
        raise SettingsError(f"Cannot read GITHUB_EVENT_PATH, {path}: {exc.strerror}.") from exc
    except UnreadableDelivery as exc:
        raise SettingsError(f"GITHUB_EVENT_PATH is not a valid {name} payload: {exc}.") from exc
    workflow_repo, event_repo = environ.get("GITHUB_REPOSITORY"), str(getattr(delivery, "repo", ""))
    if workflow_repo and event_repo and workflow_repo.lower() != event_repo.lower():
        raise SettingsError(
            f"The event in GITHUB_EVENT_PATH belongs to {event_repo}, but this workflow runs in {workflow_repo}."
        )
    return delivery


def _is_runner(environ: Mapping[str, str]) -> bool:
    return environ.get("GITHUB_ACTIONS") == "true"


def _write_error(environ: Mapping[str, str], error: Exception, write: Writer) -> None:
    text = str(error)
    is_runner = _is_runner(environ)
    write(annotation("error", text[:1].upper() + text[1:]) if is_runner else f"patchwright: {text}")


def _write_annotations(
    environ: Mapping[str, str],
    errors: Iterable[Exception],
    warnings: Iterable[str],
    trajectory: Trajectory,
    write: Writer,
) -> None:
    for error in errors:
        _write_error(environ, error, write)
    if not _is_runner(environ):
        return
    for text in (*warnings, *([UNKNOWN_PRICE] if trajectory.usage().unpriced else [])):
        write(annotation("warning", text))


def _mask_secrets(secrets: Iterable[str], write: Writer) -> None:
    for line in {line for secret in secrets for line in secret.splitlines() if line.strip()}:
        write(f"::add-mask::{line.replace('%', '%25')}")


@contextlib.contextmanager
def _disable_commands(write: Writer) -> Iterator[None]:
    """Disables workflow commands while the block runs, so that a text such as `::set-output` in an issue has
    no effect.
    """
    token = token_hex(16)
    write(f"::stop-commands::{token}")
    try:
        yield
    finally:
        write(f"::{token}::")


def _describe(job: Job, outcome: Outcome) -> str:
    """Returns the outcome in one line. If there is no pull request, the line gives the reason and the comment."""
    line = f"{job.repo}#{job.number}: {outcome.kind}"
    return f"{line}: {outcome.reason.strip()} {outcome.url}" if isinstance(outcome, Reported) else line
