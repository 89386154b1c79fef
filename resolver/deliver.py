"""What becomes of an attempt: a pull request, or a comment that says why not; what is claimed was read back."""

import logging
from dataclasses import dataclass

from resolver import prose
from resolver.ci.hold import CI, ci_for
from resolver.delivery import delivery_prose
from resolver.delivery.delivery_prose import Unproposed
from resolver.delivery.finding import show_finding
from resolver.delivery.keeping import InComment, OnBranch, publish_or_attach, run_directory, signature
from resolver.delivery.places import linked
from resolver.domain import (
    Asked,
    Commented,
    Delivered,
    Job,
    Outcome,
    Patch,
    Proposal,
    PullRequest,
    Refused,
    Verdict,
)
from resolver.errors import Forbidden, ForgeError, NotFound, Unauthorized
from resolver.events import Ended, Trajectory
from resolver.forge import Forge, may_trigger
from resolver.git.branches import branch_names
from resolver.pull.form import filled, pull_form
from resolver.request import planning_prose
from resolver.request.planning import is_question, proposed, reported
from resolver.secrets import HIDDEN, Secrets, masked
from resolver.security.policy import bounds, check
from resolver.settings.repository import read_config
from resolver.settings.settings import Settings
from resolver.summary import Summary, summarize
from resolver.workspace import Workspace

logger = logging.getLogger(__name__)

AUTHOR = ("Patchwright", "patchwright@noreply.invalid")
"""Of a commit when nobody can tell which account is ours."""


@dataclass(frozen=True)
class Attempt:
    """What the work came to."""

    ending: Ended
    patch: Patch
    verdict: Verdict
    left_open: tuple[str, ...] = ()
    """What the record of the work does not show to be done, a sentence each."""
    left_out: tuple[str, ...] = ()
    """What the agent had done and policy forbids, a sentence each; it is not in the patch."""


async def deliver(
    job: Job,
    tried: Attempt,
    workspace: Workspace,
    trajectory: Trajectory,
    forge: Forge,
    settings: Settings,
    secrets: Secrets,
) -> Outcome:
    """Publish what the verdict allows: fixed is a ready pull request, unproven and untested are drafts.

    Every effect is looked up before it is made, so the same attempt can be delivered again after a crash.
    """
    started = trajectory.started
    assert started is not None, "only a run that has started is delivered"
    story = summarize(trajectory)
    verdict = tried.verdict

    if (early := await undelivered(job, tried.ending, trajectory, forge)) is not None:
        return early
    if verdict.kind == "empty":
        reason = (
            prose.against_policy(tried.left_out) if tried.left_out else prose.nothing_changed(tried.ending)
        )
        return await decline(job, reason, None, verdict, story, forge)
    content = await check(workspace, tried.patch, bounds(settings))
    refused = content.refused or await leaks(tried.patch, content.files, workspace, secrets)
    if refused:
        return await decline(job, prose.against_policy(refused), None, verdict, story, forge)

    ci = await ci_for(trajectory, workspace, workspace.base, job.repo, forge, settings)
    commit = await committed(job, tried.patch, workspace, trajectory, forge, settings, secrets, ci)
    branches = branch_names(
        (await read_config(workspace.rules)).config.branch or settings.branch,
        settings.branch_prefix,
        job.number,
        masked(started.thread, secrets).title,
        job.id,
    )
    place = run_directory(settings, started.job.id)
    kept = await publish_or_attach(
        job.repo, workspace.git_dir, commit, branches, workspace.base, forge, place
    )
    if verdict.kind == "regressed":
        return await decline(job, verdict.reason, kept, verdict, story, forge)
    if isinstance(kept, InComment):
        return await decline(job, delivery_prose.unproposed("nowhere", kept.why), kept, verdict, story, forge)
    now = await forge.meanwhile(job.repo, job.number, started.base_branch, started.base)
    if not now.is_open or not now.has_base:
        why: Unproposed = "rewritten" if now.is_open else "closed"
        reason = delivery_prose.unproposed(why, started.base_branch)
        return await decline(job, reason, kept, verdict, story, forge)
    proposal = Proposal(
        repo=job.repo,
        number=job.number,
        base=started.base_branch,
        branch=kept.name,
        head_sha=kept.published.sha,
        title=prose.pull_title(started.thread),
        body=prose.pull_body(
            started.thread,
            verdict,
            story,
            content.files,
            content.notes,
            tried.left_open,
            tried.left_out,
            kept.published.note,
            filled(await pull_form(workspace), story.account),
            ci.told(settings.mention),
        ),
        draft=verdict.kind != "fixed",
    )
    held = False
    try:
        if kept.published.earlier:
            held = await forge.find_pull(job.repo, kept.name) is not None
        pull = await forge.propose(proposal)
    except ForgeError as exc:
        if exc.retryable or isinstance(exc, Unauthorized):
            raise
        reason = delivery_prose.unproposed("refused", str(exc))
        return await decline(job, reason, kept, verdict, story, forge)
    check_delivered(pull, kept.published.sha)
    await tell(job, forge, prose.delivered(pull, verdict, story, held=held))
    await show_finding(job, pull.head_sha, verdict, story, forge)
    return Delivered(
        url=pull.url,
        number=pull.number,
        branch=kept.name,
        draft=pull.draft,
        verdict=verdict,
        ci=ci.state,
    )


async def undelivered(
    job: Job, ending: Ended, trajectory: Trajectory, forge: Forge
) -> Refused | Asked | Commented | None:
    """How it ends where nothing is to be published.

    The requester may not any more, the agent has a question or a plan, or it was asked for no more than an answer.
    """
    if not await may_trigger(job, forge):
        return await withdraw(job, trajectory, forge)
    story, plan = summarize(trajectory), proposed(trajectory)
    assert trajectory.started is not None
    if ending.reason == "asked":
        body = planning_prose.planned(plan, story) if plan else prose.asked(ending.detail, story)
        body = linked(body, trajectory.started)
        return Asked(url=await forge.say(job.repo, job.number, job.id, body), question=ending.detail)
    if is_question(trajectory):
        answer = reported(trajectory)
        body = linked(planning_prose.explained(answer, story), trajectory.started)
        url = await tell(job, forge, body)
        reason = "The question is answered." if answer else ending.detail
        return Commented(url=url, branch=None, reason=reason, verdict=Verdict(kind="empty", reason=reason))
    return None


async def withdraw(job: Job, trajectory: Trajectory, forge: Forge) -> Refused:
    """Say that nothing is published, because whoever asked may not write any more."""
    explanation = prose.refusal("withdrawn", job)
    await tell(job, forge, prose.withdrawn(explanation, summarize(trajectory)))
    return Refused(explanation=explanation)


async def committed(
    job: Job,
    patch: Patch,
    workspace: Workspace,
    trajectory: Trajectory,
    forge: Forge,
    settings: Settings,
    secrets: Secrets,
    ci: CI,
) -> str:
    """The patch as a commit in our repository, by our account, with the requester as its co-author; its id."""
    started = trajectory.started
    assert started is not None
    # The forge masks what it is told, but not what is pushed; and a line's end must not cut a secret in two.
    story = summarize(trajectory).account
    account = masked(story, secrets) if story else None
    asked = signature(job.requester, settings.github_server_url) if job.requester else None
    message = prose.commit_message(
        masked(started.thread, secrets),
        account,
        "{} <{}>".format(*asked) if asked else "",
        started.job.id,
    )
    us = await forge.identity(job.repo)
    return await workspace.commit(
        patch,
        ci.message(message),
        author=signature(us, settings.github_server_url) if us else AUTHOR,
        when=trajectory.entries[0].at,
    )


async def leaks(
    patch: Patch, files: tuple[str, ...], workspace: Workspace, secrets: Secrets
) -> tuple[str, ...]:
    """One sentence for each file of the patch that holds a secret of ours, in whatever spelling."""
    found: list[str] = []
    for path, (before, after) in (await workspace.written(patch)).items():
        # What the sandbox printed was masked already, a diff in plain text among it.
        hidden = before.count(HIDDEN.encode())
        if path in files and secrets.mask(after).count(HIDDEN.encode()) > hidden:
            found.append(f"{path} holds a secret of this installation.")
    return tuple(found)


async def decline(
    job: Job, reason: str, kept: OnBranch | InComment | None, verdict: Verdict, story: Summary, forge: Forge
) -> Commented:
    """Say in the thread why there is no pull request, and where the work is; None: there is none to keep."""
    branch = kept.name if isinstance(kept, OnBranch) else None
    attached = kept.text if isinstance(kept, InComment) else ""
    url = await tell(job, forge, prose.declined(reason, branch, verdict, story, attached))
    return Commented(url=url, branch=branch, reason=reason, verdict=verdict)


async def tell(job: Job, forge: Forge, body: str) -> str:
    """Say it in the thread; the comment's URL, empty when the thread was locked or deleted in the meantime."""
    try:
        return await forge.say(job.repo, job.number, job.id, body)
    except (Forbidden, NotFound) as exc:
        logger.warning("thread not told", extra={"job": job.id, "error": str(exc)})
        return ""


def check_delivered(pull: PullRequest, commit: str) -> None:
    """Raises ForgeError when the pull request that was read back does not show our commit."""
    if pull.head_sha != commit:
        raise ForgeError(
            f"pull request {pull.url} shows {pull.head_sha[:12]}, not {commit[:12]}, which was pushed"
        )
