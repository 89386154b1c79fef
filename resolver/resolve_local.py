"""Resolves an issue in a repository on this disk, without a forge."""

from pathlib import Path

from patchwright.resolver.dependencies import RunDependencies
from patchwright.resolver.domain import Job, Patch, Thread
from patchwright.resolver.errors import SettingsError, UsageError
from patchwright.resolver.events import Trajectory
from patchwright.resolver.git.local_repository import commit_uncommitted_changes
from patchwright.resolver.preparation.run_start import build_run_started
from patchwright.resolver.publish import Attempt
from patchwright.resolver.request.admission import build_resume_message
from patchwright.resolver.request.command_parser import Request
from patchwright.resolver.resolve import attempt_patch
from patchwright.resolver.run_limits import was_stopped
from patchwright.resolver.settings.repo_config import format_problems, read_repo_config


async def resolve_local(
    job: Job,
    thread: Thread,
    path: Path,
    deps: RunDependencies,
    answer: str = "",
    uncommitted_changes: Patch | None = None,
) -> tuple[Attempt, Trajectory]:
    """Works on a repository on this disk, without a forge. Returns the verified attempt and the log of the
    run.

    `answer` is a person's answer to the question with which the run ended. Raises UsageError if there is an
    answer but the run asked no question. A new run starts from HEAD with the `uncommitted_changes`.
    """
    async with deps.logs.open(job.id, deps.listeners) as log:
        if answer and ((stop := log.trajectory.agent_stopped) is None or stop.reason != "input_required"):
            raise UsageError(f"run {job.id} is not waiting for an answer: continue it without --answer")
        is_stopped = log.trajectory.verdict is not None and was_stopped(log.trajectory)
        if (answer or is_stopped) and (
            message := build_resume_message(job, log.trajectory, Request("work", answer, answer))
        ):
            await log.append(message)
        started, ref = log.trajectory.run_started, "HEAD"
        if started is not None:
            uncommitted_changes = started.uncommitted_changes
            ref = uncommitted_changes.base_sha if uncommitted_changes else started.base_sha
        async with deps.workspaces.local(path, ref) as workspace:
            if uncommitted_changes:
                workspace = await commit_uncommitted_changes(workspace, uncommitted_changes)
            # Unlike a user on the forge, the person who reads this error can change the file.
            if problems := (await read_repo_config(workspace)).problems:
                raise SettingsError(format_problems(problems))
            if started is None:
                branch = workspace.base_branch or "HEAD"
                started = build_run_started(job, thread, workspace, str(path), branch, deps)
                await log.append(started.model_copy(update={"uncommitted_changes": uncommitted_changes}))
            return await attempt_patch(job, workspace, log, deps), log.trajectory
