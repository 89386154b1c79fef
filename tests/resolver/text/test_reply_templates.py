"""Exact texts of replies; every text in the templates must appear in a test."""

import ast
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest

from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.confirmation import ConfirmationRequest
from patchwright.resolver.domain import Verdict
from patchwright.resolver.publishing import publishing_texts, reply_texts
from patchwright.resolver.publishing.publishing_texts import NoPullRequestReason, UnsignedReason
from patchwright.resolver.pull_request import follow_up_texts
from patchwright.resolver.rendering.template_renderer import render, render_reply
from tests.resolver.pull_requests import job, pull
from tests.resolver.sample_runs import full_run
from tests.resolver.test_confirmation import run_of

ROOT = Path(__file__).parents[3]
REPLIES = sorted(path for path in (ROOT / "templates/replies").iterdir() if not path.name.startswith("_"))
pytestmark = pytest.mark.xdist_group("reply_templates")  # reading all tests takes seconds, once per process

MIN_TEXT_LENGTH = 16  # characters; shorter texts are not checked
PARTLY_TESTED = {"no_pull_request.md.j2", "follow_up.md.j2", "salvaged.md.j2"}
"""Long templates of which only some texts appear in tests. Remove one when all of its texts do."""

REJECTIONS: dict[reply_texts.AdmissionProblem, str] = {
    "permission": "@maintainer needs write access to start a run. A maintainer can add the label `fix-me`.",
    "withdrawn": "@maintainer no longer has write access. A maintainer can add the label.",
    "unlabeled": "the label was removed before I started. Add it again to start a new run.",
    "closed": "the issue is closed. Reopen it and ask me again.",
    "closed_pull": "the pull request is closed. Reopen it and ask me again.",
    "locked": "this conversation is locked, so I could not report here. Unlock it and ask me again.",
    "archived": "this repository is archived and read-only.",
    "empty": "this repository has no commits. Push one and ask me again.",
    "gone": "this issue was deleted or transferred, or I have no access to it.",
    "pull_only": "this command works on pull requests only. Write it on the pull request.",
    "issue_only": "this command works on issues only. Write it on an issue.",
    "no_plan": "I found no plan here that waits for approval. Tell me what to do, or ask me for a plan with `plan`.",
    "old_plan": "the plan has expired, and the code may have changed since. Ask me for a new one with "
    "`plan`, or tell me what to do.",
    "not_stopped": "I found no stopped run here that I could resume. Comment `@agent retry` to repeat the last "
    "request, or tell me what to do.",
    "other_agent": "a run keeps its agent until it ends. Leave out the agent, or start over with `retry agent=None`.",
    "no_call": "I found no call here that waits for approval. Tell me what to do.",
    "no_run": "I found no earlier request here that I could repeat. Comment `@agent` and your request, or add the "
    "label `fix-me`.",
    "already_read": "the run in progress has already read this message.",
    "already_done": "the run in progress has already handled this request.",
    "nothing_asked": "there is no open review thread here, and you gave no instructions. Say in a comment "
    "what I should change, and mention me.",
}
WORKFLOW_REJECTIONS: dict[reply_texts.AdmissionProblem, str] = {
    "permission": "@maintainer needs write access to start a run. A maintainer can repeat the request.",
    "withdrawn": "@maintainer no longer has write access. A maintainer can repeat the request.",
    "no_run": "I found no earlier request here that I could repeat. Comment `@agent` and your request.",
    "no_plan": "I found no plan here that waits for approval. In a GitHub Actions workflow, I cannot continue a plan: "
    "copy the steps that you want into a request. Otherwise, tell me what to do, or ask me for a plan with `plan`.",
    "no_call": "I found no call here that waits for approval. In a GitHub Actions workflow, I refuse risky calls and "
    "cannot continue a plan. Tell me what to do.",
    "not_stopped": "I found no stopped run here that I could resume. In a GitHub Actions workflow, I cannot continue a "
    "run. Comment `@agent retry` to repeat the last request, or tell me what to do.",
}
NOT_PUSHED = {
    "regressed": "the change would break tests that pass. 1 test fails",
    "failing": "the change's own tests fail: 1 test fails.",
    "fork": "the fork's owner does not allow edits by maintainers.",
    "gone": "the pull request's head repository or branch was deleted.",
    "closed": "the pull request was closed while I worked.",
    "locked": "the conversation was locked while I worked.",
    "default": "the pull request's head branch is the default branch of this repository, "
    "and I never push to the default branch.",
    "moved": "someone pushed to the pull request's branch while I worked, and my change conflicts with theirs.",
    "moved_unproven": "someone pushed to the pull request's branch while I worked, and the publishing job does not run "
    "tests. To start from the current commit, ask me again.",
    "moved_checks": "someone pushed to the pull request's branch while I worked, and I only repair my own commits.",
    "moving": "the pull request's branch changes faster than I can test.",
    "moved_merge": (
        "someone pushed to the pull request's branch while I merged. To merge into the current commit, ask me again."
    ),
    "empty": "the run ended without a change to the code.",
    "refused": "GitHub rejected the push: 1 test fails",
}
NO_PULL_REQUEST: dict[NoPullRequestReason, str] = {
    "closed": "the issue was closed while I worked on it.",
    "locked": "the conversation was locked while I worked on it.",
    "rewritten": "the branch `main` no longer contains the commit that I started from and tested. To "
    "start from its current commit, ask me again.",
    "forbidden": "GitHub does not let me open pull requests here.",
    "refused": "GitHub rejected the pull request (`main`).",
    "nowhere": "GitHub rejected every branch that I tried to push (`main`).",
}
PUSHED_WITH_GIT = (
    "This commit was pushed with git and is not signed by GitHub, because GitHub's API for signed commits "
)
UNSIGNED: dict[UnsignedReason, str] = {
    "merge": f"{PUSHED_WITH_GIT}does not create merge commits.",
    "name": f"{PUSHED_WITH_GIT}accepts only file names in UTF-8 (`7`).",
    "mode": f"{PUSHED_WITH_GIT}writes regular files only (`7` is or was another kind of file).",
    "files": f"{PUSHED_WITH_GIT}fails on this many files (7).",
    "size": f"{PUSHED_WITH_GIT}does not accept 7 MB.",
    "refused": f"{PUSHED_WITH_GIT}rejected the commit: `7`.",
    "different": f"{PUSHED_WITH_GIT}created a commit that differs from the tested change.",
    "unsigned": "GitHub does not show this commit as verified (7).",
    "fork": "This commit was pushed to a fork with git and is not signed by GitHub.",
}


def test_each_rejection_has_this_text() -> None:
    assert {
        why: reply_texts.render_rejection_reason(why, job(), "fix-me", mention="@agent")
        for why in get_args(reply_texts.AdmissionProblem)
    } == REJECTIONS
    assert {
        why: reply_texts.render_rejection_reason(why, job(), "fix-me", mention="@agent", is_workflow=True)
        for why in WORKFLOW_REJECTIONS
    } == WORKFLOW_REJECTIONS


def test_a_refused_label_in_a_workflow_can_be_added_by_a_maintainer() -> None:
    labeled = job().model_copy(update={"label": "fix-me"})
    text = reply_texts.render_rejection_reason("permission", labeled, "fix-me", is_workflow=True)
    assert text.endswith(" A maintainer can add the label `fix-me`.")


def test_a_failed_plan_does_not_read_like_a_failed_fix() -> None:
    summary = summarize_run(full_run()).model_copy(
        update={"is_plan": True, "stopped_early": True, "stop_detail": "It is stuck.", "configuration": None}
    )
    reason = render_reply("nothing_changed.md.j2", summary=summary).strip()
    text = render_reply(
        "no_pull_request.md.j2", reason=reason, branch=None, verdict=Verdict(kind="empty"), summary=summary,
        pasted_patch="", advice="",
    )  # fmt: skip
    assert text.startswith("**No plan:** the run ended before the plan was ready. It is stuck.\n")


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("stop", "stop a run"),
        ("approve", "approve a call or a plan"),
        ("approve all like this", "approve a call or a plan"),
        ("reject too dangerous", "reject a call"),
        ("go", "approve a plan"),
    ],
)
def test_a_refused_command_is_about_what_the_person_asked_for(command: str, action: str) -> None:
    refused = job().model_copy(update={"command": command})
    text = reply_texts.render_rejection_reason("permission", refused, "fix-me")
    assert text == f"@maintainer needs write access to {action}. A maintainer can repeat the command."


def test_each_publishing_problem_has_this_text() -> None:
    assert {
        why: follow_up_texts.render_not_pushed_reason(why, "1 test fails") for why in NOT_PUSHED
    } == NOT_PUSHED
    assert {
        why: publishing_texts.render_no_pull_request_reason(why, "main")
        for why in get_args(NoPullRequestReason)
    } == NO_PULL_REQUEST
    error = "POST repos/acme/calc/pulls: GitHub returned 422: the base branch does not exist"
    assert publishing_texts.render_no_pull_request_reason("refused", error) == (
        "GitHub rejected the pull request (`422: the base branch does not exist`)."
    )
    assert {
        why: publishing_texts.render_unsigned_reason(why, "7") for why in get_args(UnsignedReason)
    } == UNSIGNED


def test_up_to_date_and_large_patches_have_these_texts() -> None:
    assert render_reply("up_to_date.md.j2", pull=pull(head_branch="topic", base_branch="main")).strip() == (
        "`topic` is up to date with `main`: there is nothing to merge."
    )
    assert render(
        "replies/patch_too_large.md.j2", characters=70_000, run="run-1", name="change.diff"
    ).strip() == (
        "The change is too large for a comment (70,000 characters). An operator can find it as "
        "`change.diff` in the directory of the run `run-1`."
    )
    assert publishing_texts.render_pasted_patch("+1\n").startswith(
        "<details><summary>The change as a patch for `git apply`</summary>\n\n```diff\n+1\n"
    )


WAITING = ConfirmationRequest(
    code="0123abcd",
    call="run_shell: git push",
    risk="high",
    reason="`git push` uploads the work",
    similar="",
    expires_at=datetime(2026, 5, 4, 3, 2, tzinfo=UTC),
)


def test_a_run_that_was_stopped_after_it_opened_a_pull_request_names_it() -> None:
    stopped = pull().model_copy(update={"number": 10})
    assert render_reply("stopped_after_opening.md.j2", reason="the workflow was canceled.", pull=stopped) == (
        "The workflow was canceled. Before that, I had opened the pull request #10. Its description has the test "
        "results.\n"
    )


def test_the_description_of_a_changed_pull_request_links_the_newest_result() -> None:
    first = follow_up_texts.link_newer_version("**Fixed:** the sum.\n", "https://forge.test/1")
    assert first == (
        "<!--newer-version-->\n> **This describes the first version.** [The latest comment](https://forge.test/1) has "
        "the results of the current one.\n<!--/newer-version-->\n\n**Fixed:** the sum.\n"
    )
    newest = follow_up_texts.link_newer_version(first.replace("\n", "\r\n"), "https://forge.test/2")
    assert newest == first.replace("test/1", "test/2").replace("sum.\n", "sum.\r\n")


def test_a_call_that_waits_is_announced_with_this_text() -> None:
    text = render_reply("confirmation.md.j2", request=WAITING, summary=summarize_run(run_of(*full_run())))
    assert text.startswith(
        "I need your approval to run this call, because `git push` uploads the work (risk: high):\n\n"
        "```text\nrun_shell: git push\n```\n\n"
        "- To run it, comment `@agent approve 0123abcd`.\n"
        "- To run it and similar calls for the rest of this run, comment `@agent approve 0123abcd all like this`.\n"
        "- To continue without it, comment `@agent reject 0123abcd`; you can add what I should do instead.\n\n"
        "You can leave out the code `0123abcd`. If nobody decides until 2026-05-04 03:02 UTC, I continue without the "
        "call. My changes so far are saved.\n"
    )


def test_a_comment_that_decides_nothing_is_answered_with_what_to_write() -> None:
    assert {
        problem: render_reply(
            "waiting_call.md.j2", problem=problem, request=WAITING, mention="@agent"
        ).strip()
        for problem in get_args(reply_texts.DecisionProblem)
    } == {
        "expired_call": "the time to approve the call `0123abcd` is over, so it is rejected. I continue without it "
        "within a few minutes.",
        "other_call": "your comment is not about the call that waits now. To decide about this call, comment "
        "`@agent approve 0123abcd` or `@agent reject 0123abcd`.",
        "call_waits": "a call waits for your decision. Comment `@agent approve`, or `@agent reject` and what I should "
        "do instead. To start over, comment `@agent retry`.",
    }


@pytest.mark.parametrize(
    ("kind", "name", "suggestion", "known", "text"),
    [
        (
            "agent",
            "typofixer",
            ["typo-fixer"],
            ["codeact", "typo-fixer"],
            "there is no agent `typofixer`: did you mean `typo-fixer`? If `use` belongs to your request, describe the "
            "request in a few more words.",
        ),
        (
            "tool",
            "x",
            [],
            ["a", "b"],
            "`.github/patchwright.toml` lists `x` in `tools`, but there is no such tool. The tools here are `a`, `b`.",
        ),
        (
            "tool",
            "x",
            [],
            [],
            "`.github/patchwright.toml` lists `x` in `tools`, but there is no such tool: the operator of this "
            "installation allows none.",
        ),
    ],
)
def test_an_unknown_name_is_answered_with_the_known_ones(
    kind: str, name: str, suggestion: list[str], known: list[str], text: str
) -> None:
    reply = render_reply("unknown_name.md.j2", kind=kind, name=name, known=known, suggestion=suggestion)
    assert " ".join(reply.split()) == text


def test_an_agent_that_only_answers_is_named() -> None:
    assert render_reply("agent_cannot_edit.md.j2", name="reader").strip() == (
        "the agent `reader` only answers questions. Ask it with `explain use reader:` and your question."
    )


def test_a_salvage_commit_says_that_the_work_is_unfinished() -> None:
    assert render_reply("commit_salvage.txt.j2", thread=pull(title="Add it", number=7)) == (
        "Unfinished: Add it\n\n"
        "This is the work of a run that stopped early. It is not finished and may\nnot have been "
        "tested.\n\n"
        "Issue: #7\n"
    )


@pytest.fixture(scope="module")
def inlined() -> str:
    """All string literals in tests, joined."""
    trees = (ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("*.py"))
    return "\0".join(text for tree in trees for node in ast.walk(tree) for text in _texts(node))


def _texts(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.JoinedStr(values=values):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "" for one in values)
        case ast.Constant(value=str(text)):
            yield text


@pytest.mark.parametrize("template", REPLIES, ids=lambda path: path.name)
def test_every_reply_text_appears_in_a_test(inlined: str, template: Path) -> None:
    parts = re.split(r"\{[%{#].*?[%}#]\}|`|\n", template.read_text(), flags=re.DOTALL)
    texts = [text.strip() for text in parts if len(text.strip()) >= MIN_TEXT_LENGTH]
    untested = [text for text in texts if text not in inlined]
    if template.name in PARTLY_TESTED:
        assert 0 < len(untested) < len(texts)
    else:
        assert untested == []
