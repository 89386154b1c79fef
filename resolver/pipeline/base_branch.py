"""Chooses the branch that a run starts from and that its pull request targets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from patchwright.resolver.command_parser import parse_request
from patchwright.resolver.domain import Credentials, Job, Thread
from patchwright.resolver.events import Trajectory
from patchwright.resolver.forge import RepoFacts
from patchwright.resolver.git.workspaces import Workspace, WorkspaceFactory
from patchwright.resolver.run.repo_config import read_repo_config


def requested_base(job: Job, thread: Thread) -> str | None:
    """Returns the branch that `base=NAME` requests in the command, or in the text of an issue whose author
    has write access. Returns None if no branch is requested.

    People without write access must not choose the branch, because its configuration and its tests are used
    to verify the change.
    """
    return job.request.options.base or (parse_request(thread.body).options.base if thread.trusted else None)


@asynccontextmanager
async def clone_at_base(
    job: Job,
    thread: Thread,
    trajectory: Trajectory,
    facts: RepoFacts,
    workspaces: WorkspaceFactory,
    credentials: Credentials,
) -> AsyncIterator[Workspace]:
    """Clones the repository at the commit that the run started from. A new run starts from the base branch.

    The base branch is the requested branch. If no branch is requested, the base branch is `base_branch` in
    the configuration on the default branch. If the configuration names no branch, the base branch is the
    default branch. Raises BranchNotFound if the branch does not exist.
    """
    if trajectory.run_started is not None:
        async with workspaces.clone(
            facts.clone_url, trajectory.run_started.base_sha, credentials
        ) as workspace:
            yield workspace
        return
    ref = requested_base(job, thread) or facts.default_branch
    async with workspaces.clone(facts.clone_url, ref, credentials) as workspace:
        configured = (await read_repo_config(workspace)).config.base_branch
        if ref != facts.default_branch or configured in (None, ref):
            yield workspace
            return
    async with workspaces.clone(facts.clone_url, configured, credentials) as workspace:
        yield workspace
