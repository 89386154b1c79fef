"""Saves the work of a run that cannot finish. Pushes the work to a branch, and posts a comment that explains how
to resume the run.
"""

import asyncio
import logging

from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.authorization import authorize
from patchwright.resolver.branch_names import make_branch_names
from patchwright.resolver.ci.ci_hold import decide_ci_hold
from patchwright.resolver.domain import Job, Patch, PullRequest, SalvagedWork
from patchwright.resolver.errors import LogError, ResolverError
from patchwright.resolver.events import Trajectory
from patchwright.resolver.forge import Forge
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.pipeline.publish import (
    DEFAULT_AUTHOR,
    find_secret_leaks,
    post_comment,
    report_lost_permission,
)
from patchwright.resolver.publishing.publish_branch import BranchLocation, get_run_directory, push_or_paste
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_task import get_branch_template, get_task
from patchwright.resolver.secrets import mask_secrets
from patchwright.resolver.security.patch_policy import build_patch_limits, check_patch, filter_patch

logger = logging.getLogger(__name__)

SALVAGE_TIMEOUT = 180.0  # Seconds for cloning and pushing. The comment is posted even after a timeout.


async def salvage_run(
    job: Job, reason: str, deps: RunDependencies, forge: Forge, *, is_permanent: bool = True
) -> str | None:
    """Saves the work of a run that will not be retried, and updates the run's comment. Returns the branch with the
    work, or None if there is none. It is safe to call this again.

    `reason` is one sentence that says why the run stopped. `is_permanent` is True if this machine keeps the
    log, so that the run can be resumed. Raises ForgeError if the comment cannot be posted.
    """
    run, trajectory = await asyncio.to_thread(_find_run, job, deps)
    if trajectory.job_completed is not None:
        return None  # The run completed just before it was stopped, so its outcome is already posted.
    if trajectory.run_started is None or get_task(trajectory) == "setup":
        workflow_url = deps.settings.workflow_url
        text = render_reply(
            "failed.md.j2", sentence=reason, run=run, workflow_url=workflow_url, is_repeated=False
        )
        await post_comment(job, forge, text)
        return None
    if not await authorize(forge, job.repo, job.requester):
        await report_lost_permission(job, trajectory, forge)
        return None
    if trajectory.verdict and (pull := await _find_opened_pull_request(job, trajectory, deps, forge)):
        await post_comment(job, forge, render_reply("stopped_after_opening.md.j2", reason=reason, pull=pull))
        return pull.head_branch
    work = await _save_work(job, trajectory, deps, forge)
    summary, mention = summarize_run(trajectory), deps.settings.mention
    await post_comment(
        job,
        forge,
        render_reply(
            "salvaged.md.j2",
            reason=reason,
            work=work,
            verdict=trajectory.verdict,
            summary=summary,
            run=run,
            mention=mention,
            is_permanent=is_permanent,
        ),
    )
    return work.branch


async def _find_opened_pull_request(
    job: Job, trajectory: Trajectory, deps: RunDependencies, forge: Forge
) -> PullRequest | None:
    """Returns the pull request for the issue if the run was stopped after it had opened it."""
    started = trajectory.run_started
    if started is None or isinstance(started.thread, PullRequest):
        return None
    settings = deps.settings
    names = make_branch_names(
        get_branch_template(trajectory),
        settings.branch_prefix,
        job.number,
        started.thread.title,
        started.job.id,
    )
    for name in names:
        pull = await forge.find_pull_request(job.repo, name)
        # The description links to its run. An earlier run may have opened a pull request from the same branch.
        if pull and pull.trusted and (settings.workflow_url or started.job.id) in pull.body:
            return pull
    return None


def _find_run(job: Job, deps: RunDependencies) -> tuple[str, Trajectory]:
    """Returns the id and the log of the run that contains this job's work. The log is empty if it cannot be
    read.
    """
    try:
        own = deps.logs.read(job.id)
        run = own.run_resumed.run if own.run_resumed else job.id
        return run, deps.logs.read(run) if own.run_resumed else own
    except LogError as exc:
        # Usually, the job failed before its run started.
        logger.info("no log to save", extra={"job": job.id, "error": str(exc)})
        return job.id, Trajectory()


async def _save_work(job: Job, trajectory: Trajectory, deps: RunDependencies, forge: Forge) -> SalvagedWork:
    patch, run_started = trajectory.last_checkpoint(), trajectory.run_started
    if patch is None or patch.is_empty or run_started is None:
        return SalvagedWork()
    try:
        async with asyncio.timeout(SALVAGE_TIMEOUT):
            facts = await forge.get_repo_facts(job.repo)
            credentials = await forge.get_credentials(job.repo)
            deps.secrets.add(credentials.token)
            async with deps.workspaces.clone(facts.clone_url, run_started.base_sha, credentials) as workspace:
                return await _push_work(job, patch, trajectory, workspace, deps, forge)
    except (
        ResolverError,
        TimeoutError,
        OSError,
    ) as exc:  # The failure that stopped the run may occur again while its work is saved.
        logger.error("salvage branch not pushed", extra={"job": job.id, "error": str(exc)})
        reason = f"it took more than {SALVAGE_TIMEOUT:g} s" if isinstance(exc, TimeoutError) else str(exc)
        return SalvagedWork(problem=f"The work could not be pushed to a branch: {reason.rstrip('.')}.")


async def _push_work(
    job: Job, patch: Patch, trajectory: Trajectory, workspace: Workspace, deps: RunDependencies, forge: Forge
) -> SalvagedWork:
    filtered = await filter_patch(workspace, patch, build_patch_limits(deps.settings))
    if filtered.patch.is_empty:
        return SalvagedWork(excluded_changes=filtered.removed)
    files = (await check_patch(workspace, filtered.patch, build_patch_limits(deps.settings))).files
    if leaks := await find_secret_leaks(filtered.patch, files, workspace, deps.secrets):
        return SalvagedWork(
            excluded_changes=filtered.removed,
            problem=f"The work was not pushed to a branch: {' '.join(leaks)}",
        )
    assert trajectory.run_started is not None
    ci = await decide_ci_hold(trajectory, workspace, workspace.base, job.repo, forge, deps.settings)
    message = ci.mark_message(
        render_reply(
            "commit_salvage.txt.j2", thread=mask_secrets(trajectory.run_started.thread, deps.secrets)
        )
    )
    started_at = trajectory.entries[0].timestamp  # A fixed time makes the commit id reproducible.
    commit = await workspace.commit(filtered.patch, message, author=DEFAULT_AUTHOR, when=started_at)
    title, steps = trajectory.run_started.thread.title, trajectory.usage().steps
    branch_names = make_branch_names(
        get_branch_template(trajectory), deps.settings.branch_prefix, job.number, title, job.id
    )
    branches = tuple(f"{name}-after-{steps}-steps" for name in branch_names)
    if isinstance(thread := trajectory.run_started.thread, PullRequest) and not thread.is_same_repository:
        # The code is from a fork. On a branch of this repository, the workflows would run it.
        branches = ()
    run_directory = get_run_directory(deps.settings, trajectory.run_started.job.id)
    location = await push_or_paste(
        job.repo, workspace.git_dir, commit, branches, workspace.base, forge, run_directory
    )
    if isinstance(location, BranchLocation):
        return SalvagedWork(branch=location.name, files=files, excluded_changes=filtered.removed)
    problem = f"The work could not be pushed to a branch: {location.push_error.rstrip('.')}."
    return SalvagedWork(
        files=files, excluded_changes=filtered.removed, problem=problem, pasted_patch=location.text
    )
