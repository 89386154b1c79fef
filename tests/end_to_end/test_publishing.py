"""What becomes of a run's work on the forge: once, where it was wanted, as it was judged, and never lost."""

import pytest

from patchwright.resolver.domain import Published, Reported, VerdictKind
from patchwright.resolver.errors import ForgeError, WorkspaceError
from tests.contracts.forges import FIXED, file
from tests.end_to_end.publish_scenario import BRANCH, SHORT, Depot

CODE = "def add(a, b):\n    return a - b\n"


# --- every verdict ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "draft"), [("fixed", False), ("unproven", True), ("untested", True)])
async def test_a_verdict_without_a_regression_becomes_a_pull_request(
    depot: Depot, kind: VerdictKind, draft: bool
) -> None:
    outcome = await depot.deliver(kind=kind)
    assert isinstance(outcome, Published)
    (pull,) = depot.pulls
    assert (pull.draft, pull.head.ref, pull.base.ref) == (draft, BRANCH, "main")
    assert pull.body.rstrip().endswith("Fixes #1")
    assert outcome.url.endswith(f"/pull/{pull.number}")


async def test_a_regression_is_a_comment_and_its_work_on_a_branch(depot: Depot) -> None:
    outcome = await depot.deliver(kind="regressed")
    assert isinstance(outcome, Reported) and outcome.branch == BRANCH
    assert depot.pulls == ()
    assert depot.repo.read(BRANCH, "calc.py") == FIXED
    (comment,) = depot.comments
    assert comment.startswith("I did not open a pull request: A test that passed before fails now.")
    assert f"The work is on the branch `{BRANCH}`." in comment


async def test_no_change_is_a_comment_and_no_branch(depot: Depot) -> None:
    outcome = await depot.deliver(kind="empty")
    assert isinstance(outcome, Reported) and outcome.branch is None
    assert (depot.pulls, depot.repo.branches) == ((), ("main",))
    (comment,) = depot.comments
    assert comment.startswith("I did not open a pull request: the run ended without a change to the code.")


# --- the complaints of the field ----------------------------------------------------------------------------


async def test_success_with_nothing_pushed_cannot_be_claimed(depot: Depot) -> None:
    """Complaint 5: what is called delivered was read back, tree and pull request."""
    outcome = await depot.deliver()
    assert isinstance(outcome, Published)
    (pull,) = depot.pulls
    assert depot.repo.bare.read(pull.head.sha, "calc.py") == FIXED.encode()


async def test_success_is_not_claimed_when_the_pull_request_shows_another_commit(depot: Depot) -> None:
    """Complaint 5, and the positive control: here somebody is faster, and nobody is told of success."""
    depot.world.before_next_request("POST", "/pulls", lambda: depot.repo.commit(BRANCH, {"theirs.py": "1\n"}))
    with pytest.raises(ForgeError, match="which was pushed"):
        await depot.deliver()
    assert depot.comments == []


async def test_nobody_has_to_open_the_pull_request_by_hand(depot: Depot) -> None:
    """Complaint 7."""
    await depot.deliver()
    (pull,) = depot.pulls
    assert (pull.state, pull.author.login) == ("open", "patchwright[bot]")
    assert depot.comments[0].startswith(f"I opened pull request #{pull.number}.")


async def test_a_commit_is_verified_ours_and_shared_with_who_asked(depot: Depot) -> None:
    """Complaint 10: signed by GitHub, in the app's own name, the requester as its co-author."""
    await depot.deliver()
    (pull,) = depot.pulls
    sha = pull.head.sha
    person, bot = depot.world.user("maintainer"), depot.world.user("patchwright[bot]")
    shown = depot.repo.bare.git("show", "-s", "--format=%an <%ae>%n%B", sha).decode()
    assert sha in depot.repo.signed
    assert shown.startswith(f"{bot.login} <{bot.id}+{bot.login}@users.noreply.github.com>\n")
    trailers = depot.repo.bare.git("show", "-s", "--format=%(trailers:only)", sha).decode().split("\n")
    host = "127.0.0.1"  # of the fake server, where github.com would stand
    assert trailers[0] == "Issue: #1" and trailers[1].startswith("Patchwright-Run: ")
    assert trailers[2:3] == [
        f"Co-authored-by: maintainer <{person.id}+maintainer@users.noreply.{host}>",
    ]
    assert "not signed" not in pull.body


async def test_a_commit_that_could_not_be_signed_is_said_so_and_is_ours_all_the_same(depot: Depot) -> None:
    await depot.deliver(file("run.sh", b"#!/bin/sh\n", "100755"))
    (pull,) = depot.pulls
    assert "This commit was pushed with git and is not signed by GitHub" in pull.body
    assert "`run.sh` is or was not one" in pull.body
    bot = depot.world.user("patchwright[bot]")
    shown = depot.repo.bare.git("show", "-s", "--format=%an %ae", pull.head.sha).decode().strip()
    assert shown == f"{bot.login} {bot.id}+{bot.login}@users.noreply.127.0.0.1"


async def test_the_branch_and_the_base_are_those_of_their_choosing(depot: Depot) -> None:
    """Complaint 17: by the operator, by the repository, and by a word of the requester."""
    depot.repo.commit("release/1.x", {"old.py": "1\n"})
    depot.settings = {"branch_prefix": "bot/", "branch": "{slug}-{number}"}
    depot.command = "please, base=release/1.x."
    await depot.deliver()
    (pull,) = depot.pulls
    assert (pull.base.ref, pull.head.ref) == ("release/1.x", "bot/add-2-3-gives-1-1")
    assert "old.py" not in depot.repo.diff(pull)

    config = 'base_branch = "develop"\nbranch = "fix/{number}/{run}"\n'
    depot.repo.commit("main", {".github/patchwright.toml": config})
    depot.repo.commit("develop", {".github/patchwright.toml": config})
    depot.command = ""
    outcome = await depot.deliver()
    assert isinstance(outcome, Published)
    assert outcome.branch == f"bot/fix/1/{SHORT}"
    assert depot.pulls[1].base.ref == "develop"


# --- the base -----------------------------------------------------------------------------------------------


async def test_a_base_in_the_issue_counts_only_by_somebody_who_may_write(depot: Depot) -> None:
    depot.repo.commit("old", {"calc.py": CODE})
    depot.issue.body = "base=old"
    await depot.deliver()
    assert depot.pulls[0].base.ref == "main"
    depot.issue.author = depot.world.user("maintainer")
    await depot.deliver()
    assert depot.pulls[1].base.ref == "old"


async def test_a_base_that_is_not_there_is_one_clear_error(depot: Depot) -> None:
    depot.command = "base=nowhere"
    with pytest.raises(WorkspaceError, match="has no branch 'nowhere'"):
        await depot.deliver()
    assert depot.world.writes == ()


async def test_a_configuration_that_names_no_branch_of_a_run_is_as_if_it_named_none(depot: Depot) -> None:
    """It is told of it before the work: tests/end_to_end/test_repo_config.py."""
    depot.repo.commit("main", {".github/patchwright.toml": 'branch = "always-the-same"\n'})
    outcome = await depot.deliver()
    assert isinstance(outcome, Published) and outcome.branch == BRANCH


async def test_a_base_that_was_force_pushed_in_mid_run_gets_no_pull_request_of_strangers_commits(
    depot: Depot,
) -> None:
    def rewrite() -> None:
        depot.repo.bare.git("update-ref", "-d", "refs/heads/main")
        depot.repo.commit("main", {"calc.py": "# begun anew\n"})

    depot.meanwhile = rewrite
    outcome = await depot.deliver()
    assert isinstance(outcome, Reported) and outcome.branch == BRANCH
    assert depot.repo.read(BRANCH, "calc.py") == FIXED
    assert depot.pulls == ()
    assert "the branch `main` no longer contains the commit that I started from" in depot.comments[0]
    assert f"The work is on the branch `{BRANCH}`." in depot.comments[0]


async def test_a_base_that_went_on_in_mid_run_is_no_obstacle(depot: Depot) -> None:
    depot.meanwhile = lambda: depot.repo.commit("main", {"other.py": "1\n"})
    assert isinstance(await depot.deliver(), Published)


# --- the thread ---------------------------------------------------------------------------------------------


async def test_an_issue_closed_in_mid_run_gets_a_comment_and_keeps_the_work(depot: Depot) -> None:
    depot.meanwhile = lambda: depot.world.close_silently(depot.issue)
    outcome = await depot.deliver()
    assert isinstance(outcome, Reported) and outcome.branch == BRANCH
    assert depot.pulls == ()
    assert depot.comments[0].startswith(
        "I did not open a pull request: the issue was closed while I worked on it."
    )


async def test_an_issue_deleted_in_mid_run_costs_nobody_the_work(depot: Depot) -> None:
    depot.meanwhile = depot.repo.threads.clear
    outcome = await depot.deliver()
    assert isinstance(outcome, Reported)
    assert (outcome.branch, outcome.url, depot.pulls) == (BRANCH, "", ())
    assert depot.repo.read(BRANCH, "calc.py") == FIXED


async def test_an_issue_locked_in_mid_run_still_gets_its_pull_request(depot: Depot) -> None:
    depot.meanwhile = lambda: depot.world.lock_thread(depot.issue)
    outcome = await depot.deliver()
    assert isinstance(outcome, Published)
    assert (len(depot.pulls), depot.comments) == (1, [])


# --- once ---------------------------------------------------------------------------------------------------

WRITES = ["/git/refs", "/graphql", "/pulls", "/comments"]


@pytest.mark.parametrize("path", [*WRITES, "/check-runs"])
async def test_a_lost_answer_to_any_write_doubles_nothing(depot: Depot, path: str) -> None:
    depot.world.lose_next_response("POST", path)
    assert isinstance(await depot.deliver(), Published)
    assert_once(depot)


@pytest.mark.parametrize("path", WRITES)
async def test_a_worker_that_dies_at_any_write_is_followed_by_one_that_doubles_nothing(
    depot: Depot, path: str
) -> None:
    depot.world.fail_next_request("POST", path, status=401, times=2)  # nothing is tried after it
    with pytest.raises(ForgeError):
        await depot.deliver()
    assert isinstance(await depot.deliver(), Published)
    assert_once(depot)
    before = depot.world.writes
    assert isinstance(await depot.deliver(), Published)
    assert depot.world.writes == before


def assert_once(depot: Depot) -> None:
    assert depot.repo.branches == ("main", BRANCH)
    assert depot.repo.bare.count_commits("main", BRANCH) == 1
    assert (len(depot.pulls), len(depot.comments), len(depot.repo.checks)) == (1, 1, 1)


async def test_a_token_that_expired_in_mid_run_is_minted_anew(depot: Depot) -> None:
    depot.meanwhile = depot.world.expire_tokens
    before = len(depot.world.tokens)
    assert isinstance(await depot.deliver(), Published)
    assert len(depot.world.tokens) == before + 2  # one for the run's beginning, one after it expired
    depot.repo.protect(BRANCH, "No more.")
    await depot.deliver(file("run.sh", b"#!/bin/sh\n", "100755"))  # the way by git, too
    assert len(depot.world.tokens) == before + 4


async def test_a_push_that_the_open_pull_request_shows_a_moment_later_is_waited_for(depot: Depot) -> None:
    await depot.deliver(kind="unproven")
    (pull,) = depot.pulls
    head, ref = pull.head.sha, f"refs/heads/{BRANCH}"
    parent = depot.repo.bare.resolve(f"{head}~") or ""
    depot.world.before_next_request(
        "GET", f"/pulls/{pull.number}", lambda: depot.repo.bare.git("update-ref", ref, parent)
    )
    depot.world.before_next_request(
        "GET", f"/pulls/{pull.number}", lambda: depot.repo.bare.git("update-ref", ref, head)
    )
    assert isinstance(await depot.deliver(kind="fixed"), Published)
    assert not pull.draft


# --- the repository's own form ------------------------------------------------------------------------------

FORM = """<!-- Thanks! Fill this in. -->
## What does this change?

## How was it tested?
<!-- commands, please -->

## Checklist
- [ ] I have read CONTRIBUTING.md
"""


async def test_the_repositorys_own_form_is_respected(depot: Depot) -> None:
    depot.repo.commit(
        "main", {".github/PULL_REQUEST_TEMPLATE.md": FORM, "docs/pull_request_template.md": "x"}
    )
    await depot.deliver()
    (pull,) = depot.pulls
    above, _, form = pull.body.partition("\n---\n")
    assert above.startswith("**Fixed:**")
    assert form.strip() == (
        "## What does this change?\n\nIt adds now.\n\n"
        "## How was it tested?\n\npython3 -m pytest: all pass.\n\n"
        "## Checklist\n- [ ] I have read CONTRIBUTING.md\n\nFixes #1"
    )
