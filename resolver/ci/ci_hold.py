"""Decides whether continuous integration (CI) starts on the bot's commits or waits for a person with write access.

CI runs the pushed code and may have access to secrets. Therefore, if untrusted people could have influenced a
commit, the commit message contains `[skip ci]`. CI then starts only when someone with write access requests
it (resolver/pipeline/run_ci.py). Source: docs.github.com/actions/managing-workflow-runs/skipping-workflow-runs
"""

import re
from collections.abc import Collection
from typing import Literal
from urllib.parse import urlsplit

from patchwright.resolver.actions import ExternalToolResult
from patchwright.resolver.branch_names import make_branch_names
from patchwright.resolver.checks import RUN_TRAILER
from patchwright.resolver.domain import Comment, PullRequest, Repo, Thread, User
from patchwright.resolver.events import RunStarted, Trajectory
from patchwright.resolver.forge import Forge
from patchwright.resolver.git.git_process import run_git
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.run_calls import iter_calls
from patchwright.resolver.run_task import get_branch_template, get_task
from patchwright.resolver.security.sensitive_files import CI_SERVICES
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.suites import ci_workflows
from patchwright.resolver.tool_actions.subagent_actions import Browse
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import PageSnapshot

SKIP_CI = "[skip ci]"  # Other CI services support it, too; some read only the start of a message.
ACTIONS_BOT_LOGIN = "github-actions[bot]"
"""Login of the user that pushes with a workflow's own token. GitHub starts no workflows for these pushes."""

_SKIP_MARKERS = re.compile(r"\[(skip ci|ci skip|no ci|skip actions|actions skip)\]", re.IGNORECASE)
_SKIP_TRAILER = re.compile(r"^([ \t]*skip-checks):(?=[ \t]*true)", re.IGNORECASE | re.MULTILINE)
_HELD_EVENTS = frozenset({"push", "pull_request"})
"""The events on which no workflow starts if the commit message contains a marker such as `[skip ci]`."""
_LOOPBACK_HOST = re.compile(r"localhost|.*\.localhost|127\.[\d.]+|0\.0\.0\.0|::1?|", re.IGNORECASE)


class CiHold(FrozenModel):
    """Says whether continuous integration starts on one of the bot's commits, and gives the reason if it does not."""

    state: Literal["starts", "held", "silent"]
    """"starts": CI starts. "held": the commit message prevents CI. "silent": GitHub starts no workflows for
    pushes with the bot's token.
    """
    outsiders: tuple[str, ...] = ()
    """Logins of people without write access whose text the agent read."""
    read_external_content: bool = False
    """True if the agent read web pages or used external services."""
    parent_held: bool = False
    """True if the bot made the parent commit and prevented CI on it."""
    has_ci: bool = True
    """False if the repository has no CI that would start for the pull request. There is no notice then."""

    def render_notice(self, mention: str) -> str:
        """Returns a notice for the pull request, or an empty string if CI starts normally or does not exist."""
        if not self.has_ci:
            return ""
        return render("replies/ci_hold.md.j2", ci=self, mention=mention, skip_ci=SKIP_CI).strip()

    def mark_message(self, text: str) -> str:
        """Adds the marker `[skip ci]` to a commit message if CI must wait for a person. Disables all markers
        that the message already contains.
        """
        unmarked = _SKIP_TRAILER.sub(r"\1 -", _SKIP_MARKERS.sub(r"(\1)", text))
        if self.state != "held":
            return unmarked
        subject, _, rest = unmarked.partition("\n")
        return f"{subject}\n\n{SKIP_CI}\n{rest}" if rest.strip() else f"{subject}\n\n{SKIP_CI}\n"


def is_held(message: str) -> bool:
    """Returns True if the commit message prevents continuous integration from starting."""
    return bool(_SKIP_MARKERS.search(message) or _SKIP_TRAILER.search(message))


async def decide_ci_hold(
    trajectory: Trajectory, workspace: Workspace, parent: str, repo: Repo, forge: Forge, settings: Settings
) -> CiHold:
    """Decides whether continuous integration (CI) on the run's commit starts or waits for a person. The parent
    commit must be in the workspace.
    """
    started = trajectory.run_started
    assert started is not None, "cannot commit the result of a run that has not started"
    bot_user = await forge.get_bot_user(repo)
    if bot_user is not None and bot_user.login == ACTIONS_BOT_LOGIN:
        events = _HELD_EVENTS | {"pull_request_target"}
        has_workflows = await _has_workflows(workspace.config_source, trajectory, settings, events)
        if not has_workflows:
            return CiHold(state="starts")
        return CiHold(state="silent", outsiders=find_outsiders(started.thread, bot_user))
    has_ci = await _has_workflows(
        workspace.config_source, trajectory, settings, _HELD_EVENTS
    ) or await _has_ci_service(workspace.config_source)
    match settings.hold_ci:
        case "never":
            return CiHold(state="starts")
        case "always":
            return CiHold(state="held", has_ci=has_ci)
        case "untrusted":
            # The command `setup` reads no text of the thread.
            outsiders = () if get_task(trajectory) == "setup" else find_outsiders(started.thread, bot_user)
            external = has_read_external_content(trajectory, started)
            parent_held = isinstance(started.thread, PullRequest) and await _is_held_commit(workspace, parent)
            held = bool(outsiders or external or parent_held)
            return CiHold(
                state="held" if held else "starts",
                outsiders=outsiders,
                read_external_content=external,
                parent_held=parent_held,
                has_ci=has_ci,
            )


async def _has_workflows(
    workspace: Workspace, trajectory: Trajectory, settings: Settings, events: Collection[str]
) -> bool:
    """Returns True if the repository has a workflow that would start for the bot's pull request on one of `events`."""
    started = trajectory.run_started
    assert started is not None
    thread, job = started.thread, started.job
    if isinstance(thread, PullRequest):
        head, base = thread.head_branch, thread.base_branch
    else:
        base = started.base_branch
        head, _ = make_branch_names(
            get_branch_template(trajectory), settings.branch_prefix, job.number, thread.title, job.id
        )
    entries = await workspace.find_entries(ci_workflows.WORKFLOW_PATHS)
    if len(entries) > ci_workflows.MAX_FILES:
        return True
    contents = await workspace.read_blobs([entry.id for entry in entries], ci_workflows.MAX_BYTES)
    return any(
        isinstance(content, int)
        or ci_workflows.starts_for_pull_request(content.decode(errors="replace"), events, head, base)
        for content in contents.values()
    )


async def _has_ci_service(workspace: Workspace) -> bool:
    """Returns True if the repository contains a configuration file of a CI service other than GitHub Actions."""
    return any(map(CI_SERVICES.matches, await workspace.list_files()))


def find_outsiders(thread: Thread, bot_user: User | None) -> tuple[str, ...]:
    """Returns the logins of people without write access who wrote in the thread that the agent read."""
    comments = [Comment(author=thread.author, body=thread.body, trusted=thread.trusted), *thread.comments]
    if isinstance(thread, PullRequest):
        comments += [comment for review_thread in thread.threads for comment in review_thread.comments]
        comments += [thread.review] if thread.review else []
    outsiders = (
        comment.author
        for comment in comments
        if not comment.trusted and (bot_user is None or comment.author.id != bot_user.id)
    )
    return tuple(dict.fromkeys(author.login for author in outsiders))


def has_read_external_content(trajectory: Trajectory, started: RunStarted) -> bool:
    """Returns True if the agent has read an external page or used an external service such as an MCP server."""
    calls = list(iter_calls(trajectory))
    observations = [call.observation for call in calls]
    if any(isinstance(observation, ExternalToolResult) for observation in observations):
        return True
    if any(
        isinstance(observation, PageSnapshot)
        and not _LOOPBACK_HOST.fullmatch(urlsplit(observation.url).hostname or "")
        for observation in observations
    ):
        return True
    # The pages that a browsing subagent has read are in the subagent's own log. The log of this run contains
    # only the subagent's report.
    return started.network == "open" and any(isinstance(call.action, Browse) for call in calls)


async def _is_held_commit(workspace: Workspace, commit: str) -> bool:
    """Returns True if the bot made the commit and prevented continuous integration (CI) on it. Returns False
    for a person's commit, even if its message skips CI.
    """
    output = await run_git("show", "-s", "--format=%B", commit, git_dir=workspace.git_dir)
    message = output.decode(errors="replace")
    return is_held(message) and re.search(rf"^{RUN_TRAILER}: ", message, re.MULTILINE) is not None
