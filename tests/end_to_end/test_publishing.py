"""The result of a run is published once, in the right place, exactly as verified, and never lost."""

import pytest

from patchwright.resolver.domain import Published, Reported, VerdictKind
from patchwright.resolver.errors import ForgeError, WorkspaceError
from tests.contracts.forges import FIXED, file
from tests.end_to_end.publish_scenario import BRANCH, SHORT, PublishScenario

CODE = "def add(a, b):\n    return a - b\n"


# --- every verdict ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "draft"), [("fixed", False), ("unproven", True), ("untested", True)])
async def test_a_verdict_without_a_regression_becomes_a_pull_request(
    publish_scenario: PublishScenario, kind: VerdictKind, draft: bool
) -> None:
    outcome = await publish_scenario.publish(kind=kind)
    assert isinstance(outcome, Published)
    (pull,) = publish_scenario.pulls
    assert (pull.draft, pull.head.ref, pull.base.ref) == (draft, BRANCH, "main")
    assert pull.body.rstrip().endswith("Fixes #1")
    assert outcome.url.endswith(f"/pull/{pull.number}")


async def test_a_conditional_fix_is_a_draft_that_links_its_conditions(
    publish_scenario: PublishScenario,
) -> None:
    outcome = await publish_scenario.publish(kind="conditional")
    assert isinstance(outcome, Published) and outcome.draft
    (pull,) = publish_scenario.pulls
    assert pull.draft and pull.body.startswith(
        "**Fixed, if you agree to the changes to the tests:** 1 test that failed before passes now.\n"
    )
    place = f"/acme/calc/blob/{pull.head.sha}/tests/test%20calc.py#L4-L6"
    url = f"{publish_scenario.fake_github.server_url}{place}"
    assert f"- `test_one` expects something else ([`tests/test calc.py:4-6`]({url})).\n" in pull.body
    assert "**To accept it:** Do you agree to the changes to the tests?" in pull.body
    (condition,) = outcome.verdict.conditions
    assert condition.url == url


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "ready"), [("none", set()), ("fixed", {"fixed"}), ("conditional", {"fixed", "conditional"})]
)
@pytest.mark.parametrize("kind", ["fixed", "conditional", "unproven", "untested"])
async def test_a_pull_request_is_a_draft_unless_tests_show_the_fix_and_the_setting_says_otherwise(
    publish_scenario: PublishScenario, kind: VerdictKind, setting: str, ready: set[str]
) -> None:
    publish_scenario.settings["ready_for_review"] = setting
    outcome = await publish_scenario.publish(kind=kind)
    assert isinstance(outcome, Published) and outcome.draft == (kind not in ready)
    (pull,) = publish_scenario.pulls
    assert pull.draft == outcome.draft
    if kind in ("fixed", "conditional"):
        assert ("**To accept it:**" in pull.body) == pull.draft


@pytest.mark.slow
async def test_a_repository_decides_which_pull_requests_are_drafts(publish_scenario: PublishScenario) -> None:
    publish_scenario.settings["ready_for_review"] = "conditional"
    publish_scenario.repo.commit("main", {".github/patchwright.toml": 'ready_for_review = "none"\n'})
    outcome = await publish_scenario.publish()
    assert isinstance(outcome, Published) and (outcome.verdict.kind, outcome.draft) == ("fixed", True)


async def test_a_regression_becomes_a_comment_with_a_branch(publish_scenario: PublishScenario) -> None:
    outcome = await publish_scenario.publish(kind="regressed")
    assert isinstance(outcome, Reported) and outcome.branch == BRANCH
    assert publish_scenario.pulls == ()
    assert publish_scenario.repo.read(BRANCH, "calc.py") == FIXED
    (comment,) = publish_scenario.comments
    assert comment.startswith(
        "**Regressed:** 1 test that passed before fails with this change. I opened no pull request."
    )
    assert f"The work is on the branch `{BRANCH}`." in comment


async def test_no_change_becomes_a_comment_without_a_branch(publish_scenario: PublishScenario) -> None:
    publish_scenario.command = "does add() work?"
    outcome = await publish_scenario.publish(kind="empty")
    assert isinstance(outcome, Reported) and outcome.branch is None
    assert (publish_scenario.pulls, publish_scenario.repo.branches) == ((), ("main",))
    (comment,) = publish_scenario.comments
    assert comment.startswith(
        "**No pull request:** the run ended without a change to the code.\n\n**What the agent found:** add() "
        "subtracted.\n\nIt adds now.\n\nIf you only want an answer, comment `@agent explain` and your question.\n"
    )


# --- complaints about other bots ----------------------------------------------------------------------------


async def test_success_is_not_reported_without_a_push(publish_scenario: PublishScenario) -> None:
    """Complaint 5: the tree and the pull request are read back before success is reported."""
    outcome = await publish_scenario.publish()
    assert isinstance(outcome, Published)
    (pull,) = publish_scenario.pulls
    assert publish_scenario.repo.bare.read(pull.head.sha, "calc.py") == FIXED.encode()


async def test_success_is_not_reported_if_the_pull_request_has_another_head(
    publish_scenario: PublishScenario,
) -> None:
    """Complaint 5, positive control: another commit arrives first, and no success is reported."""
    publish_scenario.fake_github.before_next_request(
        "POST", "/pulls", lambda: publish_scenario.repo.commit(BRANCH, {"theirs.py": "1\n"})
    )
    with pytest.raises(ForgeError, match=r"but [0-9a-f]{12} was pushed"):
        await publish_scenario.publish()
    assert publish_scenario.comments == []


async def test_the_pull_request_is_opened_automatically(publish_scenario: PublishScenario) -> None:
    """Complaint 7."""
    await publish_scenario.publish()
    (pull,) = publish_scenario.pulls
    assert (pull.state, pull.author.login) == ("open", "patchwright[bot]")
    assert publish_scenario.comments[0].startswith(f"I opened pull request #{pull.number}.")


async def test_a_commit_is_verified_and_names_the_requester_as_co_author(
    publish_scenario: PublishScenario,
) -> None:
    """Complaint 10: signed by GitHub, with the App as author and the requester as co-author."""
    await publish_scenario.publish()
    (pull,) = publish_scenario.pulls
    sha = pull.head.sha
    person, bot = (
        publish_scenario.fake_github.user("maintainer"),
        publish_scenario.fake_github.user("patchwright[bot]"),
    )
    shown = publish_scenario.repo.bare.git("show", "-s", "--format=%an <%ae>%n%B", sha).decode()
    assert sha in publish_scenario.repo.signed
    assert shown.startswith(f"{bot.login} <{bot.id}+{bot.login}@users.noreply.github.com>\n")
    trailers = (
        publish_scenario.repo.bare.git("show", "-s", "--format=%(trailers:only)", sha).decode().split("\n")
    )
    host = "127.0.0.1"  # of the fake server; normally github.com
    assert trailers[0] == "Issue: #1" and trailers[1].startswith("Patchwright-Run: ")
    assert trailers[2:3] == [
        f"Co-authored-by: maintainer <{person.id}+maintainer@users.noreply.{host}>",
    ]
    assert "not signed" not in pull.body


async def test_an_unsigned_commit_is_reported_and_still_has_the_bot_as_author(
    publish_scenario: PublishScenario,
) -> None:
    await publish_scenario.publish(file("run.sh", b"#!/bin/sh\n", "100755"))
    (pull,) = publish_scenario.pulls
    assert "This commit was pushed with git and is not signed by GitHub" in pull.body
    assert "`run.sh` is or was another kind of file" in pull.body
    bot = publish_scenario.fake_github.user("patchwright[bot]")
    shown = publish_scenario.repo.bare.git("show", "-s", "--format=%an %ae", pull.head.sha).decode().strip()
    assert shown == f"{bot.login} {bot.id}+{bot.login}@users.noreply.127.0.0.1"


@pytest.mark.slow
async def test_branch_name_and_base_follow_the_configuration(publish_scenario: PublishScenario) -> None:
    """Complaint 17: set by the operator, by the repository, and by the requester."""
    publish_scenario.repo.commit("release/1.x", {"old.py": "1\n"})
    publish_scenario.settings = {"branch_prefix": "bot/"}
    publish_scenario.command = "please, base=release/1.x."
    await publish_scenario.publish()
    (pull,) = publish_scenario.pulls
    assert (pull.base.ref, pull.head.ref) == ("release/1.x", "bot/issue-1")
    assert "old.py" not in publish_scenario.repo.diff(pull)

    config = 'base_branch = "develop"\nbranch = "{slug}/{number}/{run}"\n'
    publish_scenario.repo.commit("main", {".github/patchwright.toml": config})
    publish_scenario.repo.commit("develop", {".github/patchwright.toml": config})
    publish_scenario.command = ""
    outcome = await publish_scenario.publish()
    assert isinstance(outcome, Published)
    assert outcome.branch == f"bot/add-2-3-gives-1/1/{SHORT}"
    assert publish_scenario.pulls[1].base.ref == "develop"


# --- the base -----------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_base_in_the_issue_counts_only_from_users_with_write_access(
    publish_scenario: PublishScenario,
) -> None:
    publish_scenario.repo.commit("old", {"calc.py": CODE})
    publish_scenario.issue.body = "base=old"
    await publish_scenario.publish()
    assert publish_scenario.pulls[0].base.ref == "main"
    publish_scenario.issue.author = publish_scenario.fake_github.user("maintainer")
    await publish_scenario.publish()
    assert publish_scenario.pulls[1].base.ref == "old"


async def test_a_missing_base_is_one_clear_error(publish_scenario: PublishScenario) -> None:
    publish_scenario.command = "base=nowhere"
    with pytest.raises(WorkspaceError, match="has no branch 'nowhere'"):
        await publish_scenario.publish()
    assert publish_scenario.fake_github.writes == ()


@pytest.mark.slow
async def test_a_branch_pattern_without_a_placeholder_is_ignored(
    publish_scenario: PublishScenario,
) -> None:
    """The comment before the run reports it: tests/end_to_end/test_repo_config.py."""
    publish_scenario.repo.commit("main", {".github/patchwright.toml": 'branch = "always-the-same"\n'})
    outcome = await publish_scenario.publish()
    assert isinstance(outcome, Published) and outcome.branch == BRANCH


async def test_a_force_pushed_base_gets_no_pull_request_with_foreign_commits(
    publish_scenario: PublishScenario,
) -> None:
    def rewrite() -> None:
        publish_scenario.repo.bare.git("update-ref", "-d", "refs/heads/main")
        publish_scenario.repo.commit("main", {"calc.py": "# begun anew\n"})

    publish_scenario.before_publishing = rewrite
    outcome = await publish_scenario.publish()
    assert isinstance(outcome, Reported) and outcome.branch == BRANCH
    assert publish_scenario.repo.read(BRANCH, "calc.py") == FIXED
    assert publish_scenario.pulls == ()
    assert (
        "the branch `main` no longer contains the commit that I started from" in publish_scenario.comments[0]
    )
    assert f"The work is on the branch `{BRANCH}`." in publish_scenario.comments[0]


@pytest.mark.slow
async def test_new_commits_on_the_base_do_not_block_publishing(publish_scenario: PublishScenario) -> None:
    publish_scenario.before_publishing = lambda: publish_scenario.repo.commit("main", {"other.py": "1\n"})
    assert isinstance(await publish_scenario.publish(), Published)


# --- the thread ---------------------------------------------------------------------------------------------


async def test_an_issue_closed_during_the_run_gets_a_comment_with_a_branch(
    publish_scenario: PublishScenario,
) -> None:
    publish_scenario.before_publishing = lambda: publish_scenario.fake_github.close_silently(
        publish_scenario.issue
    )
    outcome = await publish_scenario.publish()
    assert isinstance(outcome, Reported) and outcome.branch == BRANCH
    assert publish_scenario.pulls == ()
    assert publish_scenario.comments[0].startswith(
        "**No pull request:** the issue was closed while I worked on it."
    )


async def test_an_issue_deleted_during_the_run_loses_no_work(publish_scenario: PublishScenario) -> None:
    publish_scenario.before_publishing = publish_scenario.repo.threads.clear
    outcome = await publish_scenario.publish()
    assert isinstance(outcome, Reported)
    assert (outcome.branch, outcome.url, publish_scenario.pulls) == (BRANCH, "", ())
    assert publish_scenario.repo.read(BRANCH, "calc.py") == FIXED


async def test_an_issue_locked_during_the_run_gets_no_pull_request(publish_scenario: PublishScenario) -> None:
    publish_scenario.before_publishing = lambda: publish_scenario.fake_github.lock_thread(
        publish_scenario.issue
    )
    outcome = await publish_scenario.publish()
    assert isinstance(outcome, Reported)
    assert (outcome.branch, outcome.url) == (BRANCH, "")
    assert outcome.reason == "the conversation was locked while I worked on it."
    assert (publish_scenario.pulls, publish_scenario.comments) == ((), [])


# --- no duplicates ------------------------------------------------------------------------------------------

WRITES = ["/git/refs", "/graphql", "/pulls", "/comments"]


@pytest.mark.slow
@pytest.mark.parametrize("path", [*WRITES, "/check-runs"])
async def test_a_lost_response_to_any_write_duplicates_nothing(
    publish_scenario: PublishScenario, path: str
) -> None:
    publish_scenario.fake_github.lose_next_response("POST", path)
    assert isinstance(await publish_scenario.publish(), Published)
    assert_once(publish_scenario)


@pytest.mark.slow
@pytest.mark.parametrize("path", WRITES)
async def test_a_worker_killed_at_any_write_is_replaced_without_duplicates(
    publish_scenario: PublishScenario, path: str
) -> None:
    publish_scenario.fake_github.fail_next_request("POST", path, status=401, times=2)  # nothing follows it
    with pytest.raises(ForgeError):
        await publish_scenario.publish()
    assert isinstance(await publish_scenario.publish(), Published)
    assert_once(publish_scenario)
    before = publish_scenario.fake_github.writes
    assert isinstance(await publish_scenario.publish(), Published)
    assert publish_scenario.fake_github.writes == before


def assert_once(publish_scenario: PublishScenario) -> None:
    assert publish_scenario.repo.branches == ("main", BRANCH)
    assert publish_scenario.repo.bare.count_commits("main", BRANCH) == 1
    assert (
        len(publish_scenario.pulls),
        len(publish_scenario.comments),
        len(publish_scenario.repo.checks),
    ) == (1, 1, 1)


@pytest.mark.slow
async def test_a_token_that_expires_during_the_run_is_renewed(publish_scenario: PublishScenario) -> None:
    publish_scenario.before_publishing = publish_scenario.fake_github.expire_tokens
    before = len(publish_scenario.fake_github.tokens)
    assert isinstance(await publish_scenario.publish(), Published)
    assert (
        len(publish_scenario.fake_github.tokens) == before + 2
    )  # one at the start of the run, one after it expired
    publish_scenario.repo.protect(BRANCH, "No more.")
    await publish_scenario.publish(file("run.sh", b"#!/bin/sh\n", "100755"))  # also when it pushes with git
    assert len(publish_scenario.fake_github.tokens) == before + 4


@pytest.mark.slow
async def test_publishing_waits_until_the_pull_request_shows_the_push(
    publish_scenario: PublishScenario,
) -> None:
    await publish_scenario.publish(kind="unproven")
    (pull,) = publish_scenario.pulls
    head, ref = pull.head.sha, f"refs/heads/{BRANCH}"
    parent = publish_scenario.repo.bare.resolve(f"{head}~") or ""
    publish_scenario.fake_github.before_next_request(
        "GET", f"/pulls/{pull.number}", lambda: publish_scenario.repo.bare.git("update-ref", ref, parent)
    )
    publish_scenario.fake_github.before_next_request(
        "GET", f"/pulls/{pull.number}", lambda: publish_scenario.repo.bare.git("update-ref", ref, head)
    )
    assert isinstance(await publish_scenario.publish(kind="fixed"), Published)
    assert not pull.draft


# --- pull request template ----------------------------------------------------------------------------------

FORM = """<!-- Thanks! Fill this in. -->
## What does this change?

## How was it tested?
<!-- commands, please -->

## Checklist
- [ ] I have read CONTRIBUTING.md
"""


@pytest.mark.slow
async def test_the_pull_request_template_is_respected(publish_scenario: PublishScenario) -> None:
    publish_scenario.repo.commit(
        "main", {".github/PULL_REQUEST_TEMPLATE.md": FORM, "docs/pull_request_template.md": "x"}
    )
    await publish_scenario.publish()
    (pull,) = publish_scenario.pulls
    above, _, form = pull.body.partition("\n---\n")
    assert above.startswith("**Fixed:**")
    assert form.strip() == (
        "## What does this change?\n\nIt adds now.\n\n"
        "## How was it tested?\n\npython3 -m pytest: all pass.\n\n"
        "## Checklist\n- [ ] I have read CONTRIBUTING.md\n\nFixes #1"
    )
