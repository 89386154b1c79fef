"""Runs Patchwright in a workflow, as a single job or as two jobs: a read-only resolve job and a
publish job.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Protocol

from patchwright.bot.commands.inspect_commands import VIEW_FILE, write_view
from patchwright.bot.composition import composition_root
from patchwright.bot.credentials import collect_secrets, settings_secrets
from patchwright.bot.github.forge import GitHubForge
from patchwright.bot.github.workflow_artifacts import download_latest_artifact
from patchwright.bot.github.write_check import with_write_check
from patchwright.bot.github_action.null_objects import NullModel, NullSandboxes
from patchwright.bot.github_action.question_log import restore_question_log, write_question_log
from patchwright.bot.github_action.scheduled import (
    SCHEDULED_EVENTS,
    correct_stale_comments,
    find_missed_delivery,
    workflow_repository,
)
from patchwright.bot.github_action.workflow_step import (
    CANCELED,
    OPERATOR_ERRORS,
    JobHandlers,
    ResolveJobCanceled,
    report_early_error,
    run_action,
    write_no_view,
)
from patchwright.bot.job_runner import JobCanceled
from patchwright.bot.status_comment import comment_reporter, failure_text, null_reporter, report_failure
from patchwright.bot.terminal.progress_printer import ProgressPrinter
from patchwright.bot.triggers.command_context import CommandContext
from patchwright.bot.webhooks.triggers import TriggerRequest, Triggers
from patchwright.resolver.authorization import authorize
from patchwright.resolver.domain import Job, Outcome
from patchwright.resolver.errors import (
    ForgeError,
    InvalidArtifact,
    LogError,
    NotFound,
    ResolverError,
    SettingsError,
    UsageError,
    WriteBlocked,
)
from patchwright.resolver.events import Trajectory
from patchwright.resolver.forge import Forge, MaskingForge, ReadOnlyForge
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.pipeline.admission import expand_retry
from patchwright.resolver.pipeline.resolve import resolve_job
from patchwright.resolver.publishing import artifact
from patchwright.resolver.rendering.jinja_templates import set_template_directory
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_events import RunResumed
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.errors import SandboxError

REPLY_GRACE = timedelta(minutes=30)
"""Maximum time between the end of a run's time limit and the reply to the request. This time is needed to wait
for a runner, to build images, and for the publish job.
"""

REPORTING_SETTINGS = frozenset(
    ("DATA", "LABEL", "MENTION", "APP_ID", "PRIVATE_KEY", "CA_BUNDLE", "WORKFLOW_URL")
)
"""The settings that a job needs to report that some other setting is invalid."""

Notify = Callable[[str], object]


class WorkflowJob(Protocol):
    """Handles a Patchwright job inside a workflow step.

    Raises the errors of `resolve_job`. In a read-only resolve job, raises WriteBlocked at the first write to
    GitHub.
    """

    async def handle_command(self, context: CommandContext) -> bool: ...

    async def resolve(self, job: Job) -> Outcome: ...

    async def report_failure(self, job: Job, error: Exception) -> str | None: ...


async def run_workflow_job(
    read_settings: Callable[[], Settings],
    notify: Notify,
    *,
    resolve_directory: Path | None = None,
    publish_directory: Path | None = None,
) -> int:
    """Handles the event that started a workflow, and returns the exit code.

    If `resolve_directory` is set, only resolves the issue, and saves the artifact in that directory. If
    `publish_directory` is set, only publishes the artifact in that directory. If the event does not ask
    Patchwright for anything, no model is called and no container starts.

    Invalid settings are reported in the same places as other errors: in a comment or the artifact, in the
    step's outputs, and in the job summary.
    """
    environ = composition_root.read_environment()
    try:
        try:
            settings, problem = read_settings(), None
        except SettingsError as exc:
            reporting = {name: value for name, value in environ.items() if _is_for_reporting(name)}
            settings, problem = composition_root.read_settings({}, reporting, None, None), exc
        return await _run_job(settings, environ, notify, resolve_directory, publish_directory, problem)
    except ResolverError as exc:
        return report_early_error(environ, exc)


def _is_for_reporting(name: str) -> bool:
    """Returns True if a job may need this environment variable to report that the settings are invalid."""
    return not name.startswith("PATCHWRIGHT_") or name.removeprefix("PATCHWRIGHT_") in REPORTING_SETTINGS


async def _run_job(
    settings: Settings,
    environ: Mapping[str, str],
    notify: Notify,
    resolve_directory: Path | None,
    publish_directory: Path | None,
    problem: SettingsError | None,
) -> int:
    """Handles the event. If `problem` is not None, only reports this problem. Raises ResolverError."""
    secrets = collect_secrets(settings, environ)
    logs = FileLogStore(settings.data / "runs")
    triggers = Triggers(label=settings.label, mention=settings.mention, app_id=settings.app_id)

    async with contextlib.AsyncExitStack() as stack:
        github = await stack.enter_async_context(composition_root.open_forge(settings))
        forge = MaskingForge(github, secrets.mask)
        missed_delivery = None
        if environ.get("GITHUB_EVENT_NAME") in SCHEDULED_EVENTS:
            if resolve_directory or publish_directory:
                raise SettingsError("A scheduled workflow must use `part: all`.")
            # If the workflow has two jobs, the publish job posts the first reply.
            min_age = timedelta(seconds=settings.timeout) + REPLY_GRACE
            missed_delivery = await find_missed_delivery(
                github, workflow_repository(environ), triggers, min_age
            )
        workflow_job: WorkflowJob
        if publish_directory is not None:
            deps = build_publish_deps(settings, secrets, logs)
            workflow_job = PublishJob(forge, deps, logs, publish_directory, notify)
        else:
            workflow_job = single = SingleJob(forge, github, settings, secrets, notify, stack)
            if resolve_directory is not None:
                workflow_job = ResolveJob(single, logs, secrets, resolve_directory)

        async def handle_command(trigger: TriggerRequest) -> bool | str:
            if resolve_directory is None:
                await correct_stale_comments(github, trigger.job, settings.mention)
            writes = ReadOnlyForge(forge, trigger.job.id) if resolve_directory else forge
            context = CommandContext(trigger, triggers, writes, settings.github_server_url)
            if problem is not None and await context.is_permitted():
                raise problem
            return await workflow_job.handle_command(context) and (context.rejection or True)

        handlers = JobHandlers(
            resolve=workflow_job.resolve,
            report_failure=workflow_job.report_failure,
            read_log=lambda job: logs.read(job.id),
            handle_command=handle_command,
            calls_model=publish_directory is None,
            write_view=partial(_write_run_view, logs, secrets, notify)
            if publish_directory is None
            else write_no_view,
        )
        return await run_action(
            environ,
            handlers,
            triggers=triggers,
            missed_delivery=missed_delivery,
            secrets=settings_secrets(settings),
        )


def _write_run_view(logs: FileLogStore, secrets: Secrets, notify: Notify, job: Job) -> Path | None:
    """Writes the run as an HTML file and returns its path. Returns None if that is not possible."""
    file = logs.run_directory(job.id) / VIEW_FILE
    try:
        write_view(job.id, logs.read(job.id), logs, file, secrets)
    except (LogError, UsageError) as exc:
        notify(f"NOTICE: The HTML view of the run was not written: {exc}")
        return None
    return file


class SingleJob:
    """Resolves and publishes in one workflow job."""

    def __init__(
        self,
        forge: Forge,
        github: GitHubForge,
        settings: Settings,
        secrets: Secrets,
        notify: Notify,
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self.forge, self.settings, self._secrets = forge, settings, secrets
        self._github = github
        self._notify, self._stack = notify, stack
        self.deps: RunDependencies | None = None

    async def handle_command(self, context: CommandContext) -> bool:
        return await context.execute()

    async def resolve(self, job: Job) -> Outcome:
        deps = await self.open_deps(job)
        reporter = with_write_check(comment_reporter(self.forge, self.settings), self._github.write_check)
        logs = FileLogStore(self.settings.data / "runs")
        await self.restore_question(job, logs)
        outcome = await resolve_job(job, deps, self.forge, reporter)
        write_question_log(outcome, job, logs, deps, self._notify)
        return outcome

    async def restore_question(self, job: Job, logs: FileLogStore) -> None:
        """Restores the log of the run whose question this job answers. If that fails, the job starts a new run."""
        if not (job.request.text and await authorize(self.forge, job.repo, job.requester)):
            return
        rest, api_url, ca_bundle = self._github.rest, self.settings.github_api_url, self.settings.ca_bundle
        download = partial(download_latest_artifact, rest, api_url, ca_bundle, job.repo)
        try:
            thread = await self.forge.get_thread(job)
        except NotFound:
            return  # The issue was deleted.
        try:
            await restore_question_log(job, thread, logs, download)
        except (ForgeError, LogError) as exc:
            self._notify(
                f"NOTICE: The run that asked a question cannot be continued, so I start again: "
                f"{str(exc).rstrip('.')}. If the job lacks the permission `actions: read`, add it."
            )

    async def report_failure(self, job: Job, error: Exception) -> str | None:
        url = self.settings.workflow_url
        return await report_failure(self.forge, job, error, self.deps, log_persists=False, workflow_url=url)

    async def open_deps(self, job: Job) -> RunDependencies:
        """Returns what the run needs. Raises SettingsError and the like if the setup is incomplete.

        People without write access hear nothing about the setup: their job gets dependencies that suffice to reject it.
        """
        opening = composition_root.build_run_dependencies(
            self.settings, notify=self._notify, listeners=(ProgressPrinter(self._notify),)
        )
        try:
            self.deps = await self._stack.enter_async_context(opening)
        except (ResolverError, SandboxError):
            if await authorize(self.forge, job.repo, job.requester):
                raise
            logs = FileLogStore(self.settings.data / "runs")
            self.deps = build_publish_deps(self.settings, self._secrets, logs)
        return self.deps


class ResolveJob:
    """Resolves the issue without writing to GitHub. Saves the result as an artifact for PublishJob."""

    def __init__(self, single_job: SingleJob, logs: FileLogStore, secrets: Secrets, directory: Path) -> None:
        self._single_job, self._logs, self._secrets, self._directory = single_job, logs, secrets, directory

    async def handle_command(self, context: CommandContext) -> bool:
        with self._save_when_withheld(context.job):
            return await context.execute()

    async def resolve(self, job: Job) -> Outcome:
        with self._save_when_withheld(job):
            deps = await self._single_job.open_deps(job)
            await self._single_job.restore_question(job, self._logs)
            outcome = await resolve_job(
                job, deps, ReadOnlyForge(self._single_job.forge, job.id), null_reporter
            )
        # The job was rejected without a comment. The publish job rejects it in the same way.
        self._save_artifact(job, "")
        return outcome

    async def report_failure(self, job: Job, error: Exception) -> str | None:
        stop: artifact.StopKind = "operator_error" if isinstance(error, OPERATOR_ERRORS) else "error"
        problem = failure_text(error, in_workflow=True)
        self._save_artifact(job, problem, "canceled" if isinstance(error, JobCanceled) else stop)
        return None

    @contextlib.contextmanager
    def _save_when_withheld(self, job: Job) -> Iterator[None]:
        try:
            yield
        except WriteBlocked:
            self._save_artifact(job, "")
            raise

    def _save_artifact(self, job: Job, problem: str, stop: artifact.StopKind = "error") -> None:
        try:
            trajectory = self._logs.read(job.id)
            if trajectory.run_resumed:
                trajectory = self._logs.read(trajectory.run_resumed.run)
        except LogError:
            trajectory = None
        deps = self._single_job.deps
        secrets = deps.secrets if deps else self._secrets
        artifact.write_artifact(self._directory, job.id, trajectory, problem, secrets, stop=stop)


class PublishJob:
    """Validates the artifact of ResolveJob and publishes it. Runs no code and calls no model."""

    def __init__(
        self, forge: Forge, deps: RunDependencies, logs: FileLogStore, directory: Path, notify: Notify
    ) -> None:
        self._forge, self._deps, self._logs, self._directory = forge, deps, logs, directory
        self._notify = notify
        self._problem = ""
        """Why the first job failed, as a text for the thread."""

    async def handle_command(self, context: CommandContext) -> bool:
        return await context.execute()

    async def resolve(self, job: Job) -> Outcome:
        saved = artifact.read_artifact(self._directory, job)
        if job.request.verb == "retry":
            # The first job found the earlier request, too. The artifact is not trusted to name it.
            thread = await self._forge.get_thread(job)
            settings = self._deps.settings
            job = await expand_retry(job, thread, Trajectory(), self._forge, self._logs, settings)
        if saved.trajectory is not None:
            run, entries = await artifact.verify_entries(
                saved.trajectory, job, self._forge, self._deps.settings
            )
            async with self._logs.open(run) as log:
                log.replace_entries(entries)
            if run != job.id:
                async with self._logs.open(job.id) as log:
                    if not log.trajectory.run_resumed:
                        await log.append(RunResumed(run=run))
        if saved.manifest.problem:
            stop = saved.manifest.stop
            self._problem = saved.manifest.problem
            problem = (
                "The first job was canceled."
                if stop == "canceled"
                else f"The first job failed: {self._problem}"
            )
            raise RESOLVE_JOB_ERRORS[stop](problem)
        outcome = await resolve_job(job, self._deps, self._forge, null_reporter)
        write_question_log(outcome, job, self._logs, self._deps, self._notify)
        return outcome

    async def report_failure(self, job: Job, error: Exception) -> str | None:
        reported = error
        if isinstance(error, ResolveJobCanceled):
            reported = JobCanceled(CANCELED)
        elif isinstance(error, tuple(RESOLVE_JOB_ERRORS.values())):
            reported = JobCanceled(self._problem)
        elif isinstance(error, InvalidArtifact):  # The message already names the cause.
            reported = JobCanceled(str(error))
        return await report_failure(self._forge, job, reported, self._deps, log_persists=False)


class ResolveJobFailed(ResolverError):
    """The resolve job failed. The message is posted in the issue or pull request."""


class ResolveJobMisconfigured(SettingsError):
    """The resolve job failed because the operator has to change something, such as a setting or a key."""


RESOLVE_JOB_ERRORS: Mapping[artifact.StopKind, type[ResolverError]] = {
    "error": ResolveJobFailed,
    "operator_error": ResolveJobMisconfigured,
    "canceled": ResolveJobCanceled,
}
"""Maps the kind of problem in the artifact to the error with which the publish job ends. Both jobs then end with the
same exit code.
"""


def build_publish_deps(settings: Settings, secrets: Secrets, logs: FileLogStore) -> RunDependencies:
    """Returns the RunDependencies for publishing a result. They contain no model and no sandboxes."""
    set_template_directory(settings.templates)
    return RunDependencies(
        settings=settings,
        model=NullModel(),
        sandboxes=NullSandboxes(),
        workspaces=WorkspaceFactory(settings.data / "cache", settings.ca_bundle),
        logs=logs,
        secrets=secrets,
    )
