"""What becomes of a run that cannot come to its end: its tree on a branch, and how to go on in its one comment."""

import asyncio
import logging

from resolver import prose, salvage_prose
from resolver.ci.hold import ci_for
from resolver.deliver import AUTHOR, leaks, tell, withdraw
from resolver.delivery.keeping import OnBranch, publish_or_attach, run_directory
from resolver.domain import Job, Patch, PullRequest
from resolver.errors import LogError, ResolverError
from resolver.events import Trajectory
from resolver.forge import Forge, may_trigger
from resolver.git.branches import branch_names
from resolver.kit import Kit
from resolver.secrets import masked
from resolver.security.policy import bounds, check, permitted
from resolver.summary import summarize
from resolver.workspace import Workspace
from runtime.frozen import Frozen

logger = logging.getLogger(__name__)

KEEP_SECONDS = 180.0  # for clone and push; the comment is written in any case


class Salvaged(Frozen):
    """Where the work of a run is that was stopped."""

    branch: str | None = None
    """None: there was nothing to keep, or it could not go there."""
    files: tuple[str, ...] = ()
    """Paths that it changes."""
    left_out: tuple[str, ...] = ()
    """What policy forbids and is not on the branch, a sentence each."""
    problem: str = ""
    """Why there is no branch although there was work, in a sentence; it is in the log."""
    attached: str = ""
    """Markdown with the patch, where the forge takes no branch."""


async def salvage(job: Job, why: str, kit: Kit, forge: Forge, *, lasting: bool = True) -> None:
    """Keep the tree of a run that will not be tried again, and end its comment; doing it again changes nothing.

    `why` is one sentence. `lasting`: this machine keeps the log, so that somebody can go on with the run. Raises
    ForgeError when the thread cannot be told.
    """
    run, trajectory = await asyncio.to_thread(_work, job, kit)
    if trajectory.settled is not None:
        return  # stopped in the moment in which it ended: what it came to is said already
    if trajectory.started is None:
        await tell(job, forge, prose.failed(why, run))
        return
    if not await may_trigger(job, forge):
        await withdraw(job, trajectory, forge)
        return
    kept = await _kept(job, trajectory, kit, forge)
    story, mention = summarize(trajectory), kit.settings.mention
    await tell(
        job,
        forge,
        salvage_prose.salvaged(why, kept, trajectory.verdict, story, run, mention, lasting=lasting),
    )


def _work(job: Job, kit: Kit) -> tuple[str, Trajectory]:
    """The run in which this job's work is, and its log; an empty one when there is none that can be read."""
    try:
        own = kit.logs.read(job.id)
        run = own.resumed.run if own.resumed else job.id
        return run, kit.logs.read(run) if own.resumed else own
    except LogError as exc:
        logger.warning("no log to salvage from", extra={"job": job.id, "error": str(exc)})
        return job.id, Trajectory()


async def _kept(job: Job, trajectory: Trajectory, kit: Kit, forge: Forge) -> Salvaged:
    patch, started = trajectory.checkpoint(), trajectory.started
    if patch is None or patch.empty or started is None:
        return Salvaged()
    try:
        async with asyncio.timeout(KEEP_SECONDS):
            facts = await forge.facts(job.repo)
            credentials = await forge.credentials(job.repo)
            kit.secrets.add(credentials.token)
            async with kit.workspaces.clone(facts.clone_url, started.base, credentials) as workspace:
                return await _pushed(job, patch, trajectory, workspace, kit, forge)
    except (ResolverError, TimeoutError, OSError) as exc:  # what failed first may fail here again
        logger.error("work not kept on a branch", extra={"job": job.id, "error": str(exc)})
        reason = f"that took more than {KEEP_SECONDS:g} s" if isinstance(exc, TimeoutError) else str(exc)
        return Salvaged(problem=f"It could not be put on a branch: {reason.rstrip('.')}.")


async def _pushed(
    job: Job, patch: Patch, trajectory: Trajectory, workspace: Workspace, kit: Kit, forge: Forge
) -> Salvaged:
    allowed = await permitted(workspace, patch, bounds(kit.settings))
    if allowed.patch.empty:
        return Salvaged(left_out=allowed.left_out)
    files = (await check(workspace, allowed.patch, bounds(kit.settings))).files
    if secret := await leaks(allowed.patch, files, workspace, kit.secrets):
        return Salvaged(left_out=allowed.left_out, problem=f"It is on no branch: {' '.join(secret)}")
    assert trajectory.started is not None
    ci = await ci_for(trajectory, workspace, workspace.base, job.repo, forge, kit.settings)
    message = ci.message(salvage_prose.commit_so_far(masked(trajectory.started.thread, kit.secrets)))
    began = trajectory.entries[0].at  # so that the same tree is the same commit, however often it is made
    commit = await workspace.commit(allowed.patch, message, author=AUTHOR, when=began)
    title, steps = trajectory.started.thread.title, trajectory.spent().steps
    names = branch_names(kit.settings.branch, kit.settings.branch_prefix, job.number, title, job.id)
    branches = tuple(f"{name}-after-{steps}-steps" for name in names)
    if isinstance(thread := trajectory.started.thread, PullRequest) and not thread.same_repository:
        branches = ()  # a branch here would run the repository's workflows on a stranger's code
    place = run_directory(kit.settings, trajectory.started.job.id)
    kept = await publish_or_attach(
        job.repo, workspace.git_dir, commit, branches, workspace.base, forge, place
    )
    if isinstance(kept, OnBranch):
        return Salvaged(branch=kept.name, files=files, left_out=allowed.left_out)
    problem = f"It could not be put on a branch: {kept.why.rstrip('.')}."
    return Salvaged(files=files, left_out=allowed.left_out, problem=problem, attached=kept.text)
