"""Whether continuous integration starts on our commits by itself: where outsiders had a word, a writer starts it.

What runs there may have secrets, and runs what we push. So a commit whose making strangers could influence says
`[skip ci]`, until somebody who may write has seen it (resolver/ci/release.py).
Source: docs.github.com/actions/managing-workflow-runs/skipping-workflow-runs
"""

import re
from typing import Literal
from urllib.parse import urlsplit

from resolver.actions import Browse, Called
from resolver.ci.checks import RUN
from resolver.domain import Comment, PullRequest, Repo, Thread, User
from resolver.events import Observed, Started, Trajectory
from resolver.forge import Forge
from resolver.git.plumbing import run_git
from resolver.prose import render
from resolver.settings.settings import Settings
from resolver.suites import workflows
from resolver.workspace import Workspace
from runtime.frozen import Frozen
from runtime.observations import Page

MARK = "[skip ci]"  # other services than GitHub's heed it too, some only near a message's beginning
WORKFLOW_ACCOUNT = "github-actions[bot]"
"""Whose pushes start no workflow: those of a workflow's own token."""

_SKIPS = re.compile(r"\[(skip ci|ci skip|no ci|skip actions|actions skip)\]", re.IGNORECASE)
_TRAILER = re.compile(r"^([ \t]*skip-checks):(?=[ \t]*true)", re.IGNORECASE | re.MULTILINE)
_HERE = re.compile(r"localhost|.*\.localhost|127\.[\d.]+|0\.0\.0\.0|::1?|", re.IGNORECASE)


class CI(Frozen):
    """How continuous integration meets a commit of ours."""

    state: Literal["starts", "held", "silent"]
    """silent: the forge starts none on what our token pushes."""
    outsiders: tuple[str, ...] = ()
    """Logins of those whose text the agent read, and who may not write to the repository."""
    abroad: bool = False
    """Whether it read pages of the web, or asked services that are not ours."""
    earlier: bool = False
    """Whether the commit below is held."""

    def told(self, mention: str) -> str:
        """A sentence or two for the pull request; empty: there is nothing to say."""
        return render("replies/ci.md.j2", ci=self, mention=mention, mark=MARK).strip()

    def message(self, text: str) -> str:
        """A commit's message that says whether it is held, and does not say so by the way."""
        plain = _TRAILER.sub(r"\1 -", _SKIPS.sub(r"(\1)", text))
        if self.state != "held":
            return plain
        subject, _, rest = plain.partition("\n")
        return f"{subject}\n\n{MARK}\n{rest}" if rest.strip() else f"{subject}\n\n{MARK}\n"


def is_held(message: str) -> bool:
    """Whether a commit's message keeps continuous integration from starting."""
    return bool(_SKIPS.search(message) or _TRAILER.search(message))


async def ci_for(
    trajectory: Trajectory, workspace: Workspace, parent: str, repo: Repo, forge: Forge, settings: Settings
) -> CI:
    """How it meets the commit of a run, on top of the commit `parent`, which is in the workspace."""
    started = trajectory.started
    assert started is not None, "only a run that has started commits"
    us = await forge.identity(repo)
    if us is not None and us.login == WORKFLOW_ACCOUNT:
        return CI(state="silent" if await workspace.rules.find(workflows.PATHS) else "starts")
    match settings.hold_ci:
        case "never":
            return CI(state="starts")
        case "always":
            return CI(state="held")
        case "untrusted":
            outsiders, abroad = outsiders_in(started.thread, us), went_abroad(trajectory, started)
            earlier = isinstance(started.thread, PullRequest) and await _holds(workspace, parent)
            held = bool(outsiders or abroad or earlier)
            return CI(state="held" if held else "starts", outsiders=outsiders, abroad=abroad, earlier=earlier)


def outsiders_in(thread: Thread, us: User | None) -> tuple[str, ...]:
    """Who has written in a thread as the agent was shown it, and may not write to the repository."""
    said = [Comment(author=thread.author, body=thread.body, trusted=thread.trusted), *thread.comments]
    if isinstance(thread, PullRequest):
        said += [comment for each in thread.threads for comment in each.comments]
        said += [thread.review] if thread.review else []
    outside = (one.author for one in said if not one.trusted and (us is None or one.author.id != us.id))
    return tuple(dict.fromkeys(author.login for author in outside))


def went_abroad(trajectory: Trajectory, started: Started) -> bool:
    """Whether a stranger's page, or a service such as an MCP server, can have told the agent something."""
    seen = [event.observation for event in trajectory if isinstance(event, Observed)]
    if any(isinstance(one, Called) for one in seen):
        return True
    if any(isinstance(one, Page) and not _HERE.fullmatch(urlsplit(one.url).hostname or "") for one in seen):
        return True
    asked = [call.action for decided in trajectory.decisions() for call in decided.calls]
    # What a browsing delegate saw is in a log of its own, and only its report in this one.
    return started.network == "open" and any(isinstance(action, Browse) for action in asked)


async def _holds(workspace: Workspace, commit: str) -> bool:
    """Whether it is a commit of ours that is held; a person's own mark binds nobody else's commit."""
    shown = await run_git("show", "-s", "--format=%B", commit, git_dir=workspace.git_dir)
    message = shown.decode(errors="replace")
    return is_held(message) and re.search(rf"^{RUN}: ", message, re.MULTILINE) is not None
