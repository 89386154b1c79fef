"""Publishes an attempt as a pull request, or posts a comment that explains why there is no pull request.
After each write, the result is read back from the forge.
"""

import logging
from dataclasses import dataclass

from patchwright.resolver.activity.summary import Summary, summarize_run
from patchwright.resolver.authorization import authorize
from patchwright.resolver.branch_names import make_branch_names
from patchwright.resolver.ci.ci_hold import ACTIONS_BOT_LOGIN, CiHold, decide_ci_hold
from patchwright.resolver.domain import (
    InputRequired,
    Job,
    Outcome,
    Patch,
    Published,
    PullRequest,
    Rejected,
    Reported,
    Verdict,
    VerdictKind,
)
from patchwright.resolver.errors import Forbidden, ForgeError, NotFound, Unauthorized
from patchwright.resolver.events import AgentStopped, RunStarted, Trajectory
from patchwright.resolver.forge import Forge
from patchwright.resolver.forge_writes import PullRequestSpec
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.pipeline.commit_message import find_commit_message
from patchwright.resolver.publishing import publishing_texts, reply_texts
from patchwright.resolver.publishing.check_run import publish_check_run
from patchwright.resolver.publishing.permalinks import add_permalinks, link_conditions
from patchwright.resolver.publishing.publish_branch import (
    BranchLocation,
    CommentLocation,
    commit_author,
    get_run_directory,
    push_or_paste,
)
from patchwright.resolver.publishing.publishing_texts import NoPullRequestReason
from patchwright.resolver.pull_request.pr_template import fill_pr_template, load_pr_template
from patchwright.resolver.rendering.subjects import MAX_PULL_REQUEST_TITLE, build_subject
from patchwright.resolver.rendering.template_renderer import render_reply
from patchwright.resolver.request import plan_texts
from patchwright.resolver.run.dependencies import Run
from patchwright.resolver.run.repo_config import read_repo_config
from patchwright.resolver.run_task import get_answer, get_proposed_plan, is_question
from patchwright.resolver.secrets import SECRET_PLACEHOLDER, Secrets, mask_secrets
from patchwright.resolver.security.patch_policy import PatchCheck, build_patch_limits, check_patch
from patchwright.resolver.settings.run_settings import ReadyVerdicts
from patchwright.resolver.settings.settings import Settings

logger = logging.getLogger(__name__)

QUESTION_ADVICE = "If you only want an answer, comment `{mention} explain` and your question."
DEFAULT_AUTHOR = ("Patchwright", "patchwright@noreply.invalid")
"""Author of commits if the bot's account is unknown."""
READY_KINDS: dict[ReadyVerdicts, tuple[VerdictKind, ...]] = {
    "none": (),
    "fixed": ("fixed",),
    "conditional": ("fixed", "conditional"),
}
"""The kinds of verdict whose pull requests are ready for review, by the setting `ready_for_review`."""
ACTIONS_NOT_PERMITTED = "GitHub Actions is not permitted"
"""Start of GitHub's message if the settings of a repository or organization do not allow workflows to open pull
requests.
"""


@dataclass(frozen=True)
class Attempt:
    """The result of the agent's work."""

    agent_stopped: AgentStopped
    patch: Patch
    verdict: Verdict
    open_points: tuple[str, ...] = ()
    """One sentence for each requirement that the run did not meet, as its log shows."""
    excluded_changes: tuple[str, ...] = ()
    """One sentence for each change that the patch policy forbids. These changes are not in the patch."""


async def publish_attempt(run: Run, workspace: Workspace, attempt: Attempt) -> Outcome:
    """Publishes what the verdict allows: a pull request for `fixed`, or a draft pull request for
    `conditional`, `unproven` or `untested`.

    Each step first checks whether it was already done. Publishing can therefore be repeated after a crash.
    """
    trajectory, deps = run.log.trajectory, run.deps
    outcome = await report_without_patch(run, attempt.agent_stopped)
    if outcome is not None:
        return outcome
    publication = _Publication(run, workspace, attempt, summarize_run(trajectory))
    if attempt.verdict.kind == "empty":
        return await publication.report_no_change()
    limits = build_patch_limits(deps.settings)
    content = await check_patch(workspace, attempt.patch, limits, attempt.verdict)
    violations = content.violations or await find_secret_leaks(
        attempt.patch, content.files, workspace, deps.secrets
    )
    if violations:
        return await publication.report(reply_texts.render_against_policy(violations), None)
    ci = await decide_ci_hold(trajectory, workspace, workspace.base, run.job.repo, run.forge, deps.settings)
    location = await publication.push(content.files, ci)
    if isinstance(location, CommentLocation) or attempt.verdict.kind == "regressed":
        return await publication.report(_why_not_opened(attempt.verdict, location), location)
    if problem := await publication.find_obstacle():
        return await publication.report(problem, location)
    return await publication.open_pull_request(content, location, ci)


def _why_not_opened(verdict: Verdict, location: BranchLocation | CommentLocation) -> str:
    if verdict.kind == "regressed" or isinstance(location, BranchLocation):
        return verdict.reason
    return publishing_texts.render_no_pull_request_reason("nowhere", location.push_error)


@dataclass(frozen=True)
class _Publication:
    """The steps of publishing an attempt on an issue."""

    run: Run
    workspace: Workspace
    attempt: Attempt
    summary: Summary

    @property
    def started(self) -> RunStarted:
        started = self.run.log.trajectory.run_started
        assert started is not None, "cannot publish the result of a run that has not started"
        return started

    async def report(
        self, reason: str, location: BranchLocation | CommentLocation | None, advice: str = ""
    ) -> Reported:
        return await report_no_pull_request(
            self.run.job, reason, location, self.attempt.verdict, self.summary, self.run.forge, advice
        )

    async def report_no_change(self) -> Reported:
        excluded = self.attempt.excluded_changes
        if excluded:
            return await self.report(reply_texts.render_against_policy(excluded), None)
        mention = self.run.deps.settings.mention
        advice = QUESTION_ADVICE.format(mention=mention) if self.run.job.command else ""
        reason = render_reply("nothing_changed.md.j2", summary=self.summary).strip()
        return await self.report(reason, None, advice)

    async def push(self, files: tuple[str, ...], ci: CiHold) -> BranchLocation | CommentLocation:
        """Commits the patch and pushes the commit. If no branch can be pushed, the patch goes into a comment."""
        run, settings = self.run, self.run.deps.settings
        commit = await create_commit(run, self.attempt.patch, files, self.workspace, ci)
        config = (await read_repo_config(self.workspace.config_source)).config
        branches = make_branch_names(
            config.branch,
            settings.branch_prefix,
            run.job.number,
            mask_secrets(self.started.thread, run.deps.secrets).title,
            run.job.id,
        )
        run_directory = get_run_directory(settings, self.started.job.id)
        git_dir, base = self.workspace.git_dir, self.workspace.base
        return await push_or_paste(run.job.repo, git_dir, commit, branches, base, run.forge, run_directory)

    async def find_obstacle(self) -> str:
        """Returns why no pull request can be opened now, or an empty string."""
        job, started = self.run.job, self.started
        state = await self.run.forge.get_thread_state(
            job.repo, job.number, started.base_branch, started.base_sha
        )
        if state.is_open and not state.is_locked and state.has_base:
            return ""
        problem: NoPullRequestReason = "locked" if state.is_locked else "rewritten"
        problem = problem if state.is_open else "closed"
        return publishing_texts.render_no_pull_request_reason(problem, started.base_branch)

    async def open_pull_request(self, content: PatchCheck, location: BranchLocation, ci: CiHold) -> Outcome:
        job, forge = self.run.job, self.run.forge
        verdict = link_conditions(self.attempt.verdict, self.started, location.commit.sha)
        spec = await self._describe_pull_request(verdict, content, location, ci)
        was_open = False
        try:
            if location.commit.already_existed:
                was_open = await forge.find_pull_request(job.repo, location.name) is not None
            pull = await forge.open_pull_request(spec)
        except ForgeError as exc:
            if exc.retryable or isinstance(exc, Unauthorized):
                raise
            is_forbidden = isinstance(exc, Forbidden)
            reason = publishing_texts.render_no_pull_request_reason(
                "forbidden" if is_forbidden else "refused", str(exc)
            )
            settings = self.run.deps.settings
            advice = await explain_how_to_open(spec, forge, settings, str(exc)) if is_forbidden else ""
            return await report_no_pull_request(job, reason, location, verdict, self.summary, forge, advice)
        check_published(pull, location.commit.sha)
        text = render_reply(
            "published.md.j2", pull=pull, verdict=verdict, summary=self.summary, already_open=was_open
        )
        await post_comment(job, forge, text)
        await publish_check_run(job, pull.head_sha, verdict, self.summary, forge)
        return Published(
            url=pull.url,
            number=pull.number,
            branch=location.name,
            draft=pull.draft,
            verdict=verdict,
            ci_state=ci.state,
        )

    async def _describe_pull_request(
        self, verdict: Verdict, content: PatchCheck, location: BranchLocation, ci: CiHold
    ) -> PullRequestSpec:
        job, started, settings = self.run.job, self.started, self.run.deps.settings
        config = (await read_repo_config(self.workspace.config_source)).config
        draft = verdict.kind not in READY_KINDS[config.ready_for_review or settings.ready_for_review]
        template = fill_pr_template(await load_pr_template(self.workspace), self.summary.finish)
        return PullRequestSpec(
            repo=job.repo,
            number=job.number,
            base_branch=started.base_branch,
            branch=location.name,
            head_sha=location.commit.sha,
            title=build_subject(started.thread.title, content.files, MAX_PULL_REQUEST_TITLE),
            body=reply_texts.render_pull_request_body(
                started.thread,
                verdict,
                self.summary,
                reply_texts.PullRequestRemarks(
                    notes=content.notes,
                    open_points=self.attempt.open_points,
                    excluded_changes=self.attempt.excluded_changes,
                    unsigned_reason=location.commit.note,
                    pr_template=template,
                    ci=ci.render_notice(settings.mention),
                    files=content.files,
                    is_draft=draft,
                ),
                settings.mention,
            ),
            draft=draft,
            reviewer=job.requester,
        )


async def explain_how_to_open(spec: PullRequestSpec, forge: Forge, settings: Settings, error: str) -> str:
    """Explains what to do if GitHub does not let us open a pull request. `error` contains GitHub's message."""
    bot_user = await forge.get_bot_user(spec.repo)
    return publishing_texts.render_pull_request_forbidden(
        f"{settings.github_server_url.rstrip('/')}/{spec.repo}",
        spec.base_branch,
        spec.branch,
        settings.mention,
        is_actions=ACTIONS_NOT_PERMITTED in error
        or (bot_user is not None and bot_user.login == ACTIONS_BOT_LOGIN),
    )


async def report_without_patch(
    run: Run, agent_stopped: AgentStopped
) -> Rejected | InputRequired | Reported | None:
    """Completes the job and returns its outcome if there is nothing to publish. Otherwise, returns None.

    Nothing is published if the requester has lost write access, or if the job only asked for an answer. The same
    applies if the agent has a question or proposes a plan.
    """
    job, trajectory, forge = run.job, run.log.trajectory, run.forge
    if not await authorize(forge, job.repo, job.requester):
        return await report_lost_permission(job, trajectory, forge)
    summary, plan = summarize_run(trajectory), get_proposed_plan(trajectory)
    assert trajectory.run_started is not None
    if agent_stopped.reason == "input_required":
        waiting = agent_stopped.confirmation
        if waiting:
            body = render_reply("confirmation.md.j2", request=waiting, summary=summary).strip()
        elif plan:
            body = add_permalinks(plan_texts.render_plan(plan, summary), trajectory.run_started)
        else:
            body = render_reply("question.md.j2", question=agent_stopped.detail, summary=summary)
            body = add_permalinks(body.strip(), trajectory.run_started)
        url = await forge.upsert_comment(job.repo, job.number, job.id, body)
        return InputRequired(url=url, question=agent_stopped.detail, confirmation=waiting)
    if is_question(trajectory):
        answer = get_answer(trajectory)
        body = add_permalinks(plan_texts.render_explanation(answer, summary), trajectory.run_started)
        url = await post_comment(job, forge, body)
        reason = "The question is answered." if answer else summary.stop_detail
        return Reported(url=url, branch=None, reason=reason)
    return None


async def report_lost_permission(job: Job, trajectory: Trajectory, forge: Forge) -> Rejected:
    """Posts a comment: nothing is published, because the requester no longer has write access."""
    summary = summarize_run(trajectory)
    explanation = reply_texts.render_rejection_reason("withdrawn", job, is_workflow=summary.in_workflow)
    text = render_reply("withdrawn.md.j2", explanation=explanation, summary=summary)
    await post_comment(job, forge, text)
    return Rejected(explanation=explanation)


async def create_commit(
    run: Run, patch: Patch, files: tuple[str, ...], workspace: Workspace, ci: CiHold
) -> str:
    """Commits the patch to the local repository and returns the commit id. The author is the bot's account,
    and the requester is the co-author.
    """
    job, trajectory, secrets = run.job, run.log.trajectory, run.deps.secrets
    server_url, started = run.deps.settings.github_server_url, trajectory.run_started
    assert started is not None
    # MaskingForge masks secrets in API calls, but not in pushed commits, so this function masks them. It does
    # so before the message is wrapped, because wrapping could split a secret.
    finish = summarize_run(trajectory).finish
    masked_finish = mask_secrets(finish, secrets) if finish else None
    co_author = commit_author(job.requester, server_url) if job.requester else None
    message = render_reply(
        "commit.txt.j2",
        thread=mask_secrets(started.thread, secrets),
        finish=masked_finish,
        requester="{} <{}>".format(*co_author) if co_author else "",
        run=started.job.id,
        files=files,
        written=find_commit_message(trajectory),
    )
    bot_user = await run.forge.get_bot_user(job.repo)
    return await workspace.commit(
        patch,
        ci.mark_message(message),
        author=commit_author(bot_user, server_url) if bot_user else DEFAULT_AUTHOR,
        when=trajectory.entries[0].timestamp,
    )


async def find_secret_leaks(
    patch: Patch, files: tuple[str, ...], workspace: Workspace, secrets: Secrets
) -> tuple[str, ...]:
    """Returns one sentence for each file to which the patch adds one of our secrets. Also finds secrets in the
    known encodings, such as Base64.
    """
    found: list[str] = []
    for path, (before, after) in (await workspace.read_changed_files(patch)).items():
        # The sandbox's output is masked, so a file may already contain the placeholder.
        masked_before = before.count(SECRET_PLACEHOLDER.encode())
        if path in files and secrets.mask(after).count(SECRET_PLACEHOLDER.encode()) > masked_before:
            found.append(f"{path} contains a secret of this installation.")
    return tuple(found)


async def report_no_pull_request(
    job: Job,
    reason: str,
    location: BranchLocation | CommentLocation | None,
    verdict: Verdict,
    summary: Summary,
    forge: Forge,
    advice: str = "",
) -> Reported:
    """Posts a comment that explains why there is no pull request and where the work is. `location` is None if
    there is no work. `advice` says what to do, in Markdown.
    """
    branch = location.name if isinstance(location, BranchLocation) else None
    pasted_patch = location.text if isinstance(location, CommentLocation) else ""
    url = await post_comment(
        job,
        forge,
        render_reply(
            "no_pull_request.md.j2",
            reason=reason,
            branch=branch,
            verdict=verdict,
            summary=summary,
            pasted_patch=pasted_patch,
            advice=advice,
        ),
    )
    return Reported(url=url, branch=branch, reason=reason, verdict=verdict)


async def post_comment(job: Job, forge: Forge, body: str) -> str:
    """Creates or updates the job's comment. Returns the URL of the comment, or an empty string if the thread
    was locked or deleted.
    """
    try:
        return await forge.upsert_comment(job.repo, job.number, job.id, body)
    except (Forbidden, NotFound) as exc:
        logger.warning("comment not posted", extra={"job": job.id, "error": str(exc)})
        return ""


def check_published(pull: PullRequest, commit: str) -> None:
    """Raises ForgeError if the head of the pull request is not the commit that we published."""
    if pull.head_sha != commit:
        raise ForgeError(
            f"the head of pull request {pull.url} is {pull.head_sha[:12]}, but {commit[:12]} was pushed"
        )
