"""Renders the texts about publishing that people read."""

import re
from typing import Literal
from urllib.parse import quote

from patchwright.resolver.rendering.template_renderer import render

UnsignedReason = Literal["merge", "name", "mode", "files", "size", "refused", "different", "unsigned", "fork"]


def render_unsigned_reason(reason: UnsignedReason, detail: str = "") -> str:
    """Explains in a sentence why GitHub did not sign a commit."""
    return render("replies/unsigned_reason.md.j2", reason=reason, detail=detail).strip()


def render_pasted_patch(patch: str) -> str:
    """Renders the whole change as a collapsed patch for `git apply`."""
    longest = max((len(run) for run in re.findall(r"`{3,}", patch)), default=2)
    # A line after the patch protects its last line break, which copying may lose.
    return render("replies/pasted_patch.md.j2", patch=f"{patch}-- \npatchwright\n", fence="`" * (longest + 1))


def render_pull_request_forbidden(
    repo_url: str, base: str, branch: str, mention: str, *, is_actions: bool
) -> str:
    """Explains how to open the pull request by hand, and how to permit it. `is_actions` is True for the
    token of a workflow.
    """
    return render(
        "replies/pull_request_forbidden.md.j2",
        compare_url=f"{repo_url}/compare/{quote(base)}...{quote(branch)}?expand=1",
        permission_url=f"{repo_url}/settings/{'actions' if is_actions else 'installations'}",
        mention=mention,
        is_actions=is_actions,
    ).strip()


NoPullRequestReason = Literal["closed", "locked", "rewritten", "forbidden", "refused", "nowhere"]


def render_no_pull_request_reason(reason: NoPullRequestReason, detail: str = "") -> str:
    """Explains why no pull request was opened although there is a change."""
    without_path = re.sub(r"^.*?: GitHub returned (?=\d)", "", detail, count=1)
    return render("replies/no_pull_request_reason.md.j2", reason=reason, detail=without_path).strip()
