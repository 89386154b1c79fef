"""Which branch a run begins from, and its pull request goes to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from resolver.domain import Credentials, Job, Thread
from resolver.events import Trajectory
from resolver.forge import RepoFacts
from resolver.request.request import request
from resolver.settings.repository import read_config
from resolver.workspace import Workspace, Workspaces


def named_base(job: Job, thread: Thread) -> str | None:
    """The branch that the command names by `base=`, else the issue of somebody who may write.

    A stranger's word would choose whose configuration and tests judge the change.
    """
    return job.asked.options.base or (request(thread.body).options.base if thread.trusted else None)


@asynccontextmanager
async def at_base(
    job: Job,
    thread: Thread,
    trajectory: Trajectory,
    facts: RepoFacts,
    workspaces: Workspaces,
    credentials: Credentials,
) -> AsyncIterator[Workspace]:
    """The repository where the run began, or begins.

    That is the branch named for it, else `base_branch` of the configuration on the default branch, else that.
    Raises NoSuchBranch when there is none of that name.
    """
    if trajectory.started is not None:
        async with workspaces.clone(facts.clone_url, trajectory.started.base, credentials) as workspace:
            yield workspace
        return
    ref = named_base(job, thread) or facts.default_branch
    async with workspaces.clone(facts.clone_url, ref, credentials) as workspace:
        configured = (await read_config(workspace)).config.base_branch
        if ref != facts.default_branch or configured in (None, ref):
            yield workspace
            return
    async with workspaces.clone(facts.clone_url, configured, credentials) as workspace:
        yield workspace
