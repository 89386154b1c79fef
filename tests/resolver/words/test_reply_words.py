"""The exact words of replies: those of every refusal in one place, and that no branch of a reply is seen by no test."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from resolver import prose, salvage_prose
from resolver.delivery import delivery_prose
from resolver.delivery.delivery_prose import NotSigned, Unproposed
from resolver.pull import follow_up_prose
from tests.resolver.pull_requests import job, pull

ROOT = Path(__file__).parents[3]
REPLIES = sorted(path for path in (ROOT / "templates/replies").iterdir() if not path.name.startswith("_"))
SHORTEST = 16  # characters of a stretch of words that is looked for
PARTLY = {"declined.md.j2", "followed_up.md.j2", "pull_body.md.j2", "salvaged.md.j2"}
"""Long ones, of which no test has every heading: at least one stretch of words. Who inlines the rest takes it out."""

REFUSALS: dict[prose.Refusing, str] = {
    "permission": "maintainer may not write to this repository. Somebody who may can put the label on, or ask me in a "
    "comment.",
    "withdrawn": "maintainer may not write to this repository any more. Somebody who may can put the label on, or ask "
    "me in a comment.",
    "closed": "the issue is closed. Reopen it and ask me again.",
    "closed_pull": "the pull request is closed. Reopen it and ask me again.",
    "locked": "this conversation is locked, and I could not report here. Unlock it and ask me again.",
    "archived": "this repository is archived, and nobody may write to it.",
    "empty": "this repository has no commit yet. Push one and ask me again.",
    "gone": "it was deleted or moved, or I may not see it.",
    "pull_only": "there is nothing to do that to on an issue. Write it on the pull request.",
    "no_plan": "no plan of mine waits for a go here, as far as I know. Ask me for one with `plan`, or say what I "
    "should do.",
    "old_plan": "the plan has waited too long: the code may be another by now. Ask me for a new one with `plan`, or "
    "say what I should do.",
    "not_stopped": "nothing that I could go on with was stopped here, as far as I know. Say what I should do.",
    "told": "a run that was at work has read it.",
    "done": "a run that was at work then has done it.",
    "nothing_asked": "there is no open review thread here, and nothing else was asked. Write in a review or a comment "
    "what I should change, and mention me.",
}
NOT_HERE = {
    "regressed": "it would break what works. 1 test fails",
    "failing": "tests that it brings fail: 1 test fails.",
    "fork": "the fork's owner does not let the people of this repository push to it.",
    "gone": "the repository or the branch that it comes from is gone.",
    "closed": "it was closed while I worked.",
    "default": "its branch is this repository's default branch, which I never write to.",
    "moved": "somebody pushed to its branch while I worked, and my change does not fit on top of theirs.",
    "moved_unproven": "somebody pushed to its branch while I worked, and the job that publishes runs no tests. Ask me "
    "again for a change to what is there now.",
    "moved_checks": "somebody pushed to its branch while I worked, and their commit is not mine to repair.",
    "moving": "its branch moves faster than I can test.",
    "moved_merge": "somebody pushed to its branch while I merged. Ask me again for a merge with what is there now.",
    "empty": "no change to the code came of it.",
    "refused": "GitHub did not take it: 1 test fails",
}
UNPROPOSED: dict[Unproposed, str] = {
    "closed": "the issue was closed while I worked on it.",
    "rewritten": "the branch `main` no longer has the commit that I began from and tested on. Ask me again, and I "
    "begin from what it is now.",
    "refused": "GitHub takes no pull request from me here (`main`).",
    "nowhere": "GitHub takes the change on no branch of mine (`main`).",
}
BY_API = "This commit was pushed by git and is not signed by GitHub, whose API for signed commits "
BY_GIT: dict[NotSigned, str] = {
    "merge": f"{BY_API}makes no merges.",
    "name": f"{BY_API}takes no file name that is not UTF-8 (`7`).",
    "mode": f"{BY_API}writes plain files only (`7` is, or was, something else).",
    "files": f"{BY_API}is known to fail on so many files (7).",
    "size": f"{BY_API}takes no 7 MB.",
    "refused": f"{BY_API}did not take it: `7`.",
    "different": f"{BY_API}made something else of the change than was tested.",
    "unsigned": "GitHub does not show this commit as verified (7).",
    "fork": "This commit was pushed to a fork by git, and is not signed by GitHub.",
}


def test_each_refusal_has_these_words() -> None:
    assert {why: prose.refusal(why, job()) for why in get_args(prose.Refusing)} == REFUSALS


def test_each_reason_why_work_is_elsewhere_has_these_words() -> None:
    assert {why: follow_up_prose.not_here(why, "1 test fails") for why in NOT_HERE} == NOT_HERE
    assert {why: delivery_prose.unproposed(why, "main") for why in get_args(Unproposed)} == UNPROPOSED
    assert {why: delivery_prose.by_git(why, "7") for why in get_args(NotSigned)} == BY_GIT


def test_what_is_up_to_date_or_too_large_says_so() -> None:
    assert follow_up_prose.up_to_date(pull(head="topic", base="main")) == (
        "`topic` has everything of `main` already: there is nothing to merge."
    )
    assert delivery_prose.too_large(70_000, "run-1", "change.diff").strip() == (
        "The change is too large for a comment (70,000 characters). An operator finds it as `change.diff` in the "
        "directory of the run `run-1`."
    )
    assert delivery_prose.attached("+1\n").startswith(
        "<details><summary>The whole change as a patch, for `git apply`</summary>\n\n```diff\n+1\n"
    )


def test_the_commit_of_unfinished_work_says_that_it_is_unfinished() -> None:
    assert salvage_prose.commit_so_far(pull(title="Add it", number=7)) == (
        "Unfinished: Add it\n\n"
        "The work as it was when it had to stop. It was not finished, and may\nnot have been tested.\n\n"
        "Issue: #7\n"
    )


@pytest.fixture(scope="module")
def inlined() -> str:
    """All texts that stand in tests, as one."""
    trees = (ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("*.py"))
    return "\0".join(text for tree in trees for node in ast.walk(tree) for text in _texts(node))


def _texts(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.JoinedStr(values=values):
            yield "".join(str(one.value) if isinstance(one, ast.Constant) else "" for one in values)
        case ast.Constant(value=str(text)):
            yield text


@pytest.mark.parametrize("template", REPLIES, ids=lambda path: path.name)
def test_the_words_of_a_reply_stand_in_a_test(inlined: str, template: Path) -> None:
    said = re.split(r"\{[%{#].*?[%}#]\}|`|\n", template.read_text(), flags=re.DOTALL)
    stretches = [text.strip() for text in said if len(text.strip()) >= SHORTEST]
    unseen = [text for text in stretches if text not in inlined]
    if template.name in PARTLY:
        assert 0 < len(unseen) < len(stretches)
    else:
        assert unseen == []
