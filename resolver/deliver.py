"""What becomes of an attempt: a pull request, or a comment that says why not; what is claimed was read back."""

from dataclasses import dataclass

from resolver import prose
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
from resolver.errors import Forbidden, ForgeError
from resolver.events import Ended, Trajectory
from resolver.forge import MAY_TRIGGER, Forge, Published
from resolver.policy import bounds, check
from resolver.secrets import HIDDEN, Secrets, masked
from resolver.settings import Settings
from resolver.summary import Summary, summarize
from resolver.workspace import Workspace

AUTHOR = ("Patchwright", "patchwright@users.noreply.github.com")


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

    if job.requester is not None and await forge.permission(job.repo, job.requester) not in MAY_TRIGGER:
        # Asked again: it may have been taken away while we worked.
        explanation = prose.refusal("permission", job)
        await forge.say(job.repo, job.number, job.id, prose.refused(explanation))
        return Refused(explanation=explanation)
    if tried.ending.reason == "asked":
        url = await forge.say(job.repo, job.number, job.id, prose.asked(tried.ending.detail, story))
        return Asked(url=url, question=tried.ending.detail)
    if verdict.kind == "empty":
        reason = (
            prose.against_policy(tried.left_out) if tried.left_out else prose.nothing_changed(tried.ending)
        )
        return await decline(job, reason, None, verdict, story, forge)
    content = await check(workspace, tried.patch, bounds(settings))
    refused = content.refused or await leaks(tried.patch, content.files, workspace, secrets)
    if refused:
        return await decline(job, prose.against_policy(refused), None, verdict, story, forge)

    # The forge masks what it is told, but not what is pushed; and a line's end must not cut a secret in two.
    account = masked(story.account, secrets) if story.account else None
    message = prose.commit_message(masked(started.thread, secrets), account)
    commit = await workspace.commit(tried.patch, message, author=AUTHOR, when=trajectory.entries[0].at)
    branch, published = await keep(job, commit, workspace, forge, settings)
    if verdict.kind == "regressed":
        return await decline(job, verdict.reason, branch, verdict, story, forge)
    pull = await forge.propose(
        Proposal(
            repo=job.repo,
            number=job.number,
            base=started.base_branch,
            branch=branch,
            head_sha=published.sha,
            title=prose.pull_title(started.thread),
            body=prose.pull_body(
                started.thread,
                verdict,
                story,
                content.files,
                content.notes,
                tried.left_open,
                tried.left_out,
            ),
            draft=verdict.kind != "fixed",
        )
    )
    check_delivered(pull, published.sha)
    await forge.say(job.repo, job.number, job.id, prose.delivered(pull, verdict, story))
    return Delivered(url=pull.url, number=pull.number, branch=branch, draft=pull.draft, verdict=verdict)


async def leaks(
    patch: Patch, files: tuple[str, ...], workspace: Workspace, secrets: Secrets
) -> tuple[str, ...]:
    """One sentence for each file of the patch that holds a secret of ours, in whatever spelling."""
    found: list[str] = []
    for path in files:
        content = await workspace.content(patch, path)
        if content is None:
            continue
        # What the sandbox printed was masked already, a diff in plain text among it.
        masked_before = (await workspace.read(path) or "").count(HIDDEN)
        if secrets.mask(content).count(HIDDEN.encode()) > masked_before:
            found.append(f"{path} holds a secret of this installation.")
    return tuple(found)


async def keep(
    job: Job, commit: str, workspace: Workspace, forge: Forge, settings: Settings
) -> tuple[str, Published]:
    """Publish the commit on a branch of ours; its name, and the commit as the forge has it.

    When an earlier run's work is on the issue's own branch, this run gets one of its own.
    """
    branch = f"{settings.branch_prefix}issue-{job.number}"
    try:
        return branch, await forge.publish(job.repo, workspace.git_dir, commit, branch, workspace.base)
    except Forbidden:
        branch = f"{branch}-{job.id[-8:].strip('-.')}"
        return branch, await forge.publish(job.repo, workspace.git_dir, commit, branch, workspace.base)


async def decline(
    job: Job, reason: str, branch: str | None, verdict: Verdict, story: Summary, forge: Forge
) -> Commented:
    """Say in the thread why there is no pull request."""
    url = await forge.say(job.repo, job.number, job.id, prose.declined(reason, branch, verdict, story))
    return Commented(url=url, branch=branch, reason=reason, verdict=verdict)


def check_delivered(pull: PullRequest, commit: str) -> None:
    """Raises ForgeError when the pull request that was read back does not show our commit."""
    if pull.head_sha != commit:
        raise ForgeError(
            f"pull request {pull.url} shows {pull.head_sha[:12]}, not {commit[:12]}, which was pushed"
        )
