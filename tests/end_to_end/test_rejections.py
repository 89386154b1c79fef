"""Every rejection is posted once with its reason, also after redeliveries and restarts."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from patchwright.demo.github import FakePullRequest, Issue
from tests.end_to_end.server_scenario import ServerScenario, open_server_scenario, timeline, wait_until

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("refusals"),
]

NO_WRITE = "patchwright[bot]: @{} needs write access to start a run. A maintainer can add the label `fix-me`."


@dataclass
class RejectionCase:
    """What a person does in a thread, and its expected timeline."""

    play: Callable[[ServerScenario, str], Awaitable[Issue]]
    expected: list[str]
    logged: str = ""
    """The expected log message, if nobody can be notified on GitHub."""


CASES: dict[str, RejectionCase] = {}


def scenario(
    *expected: str, logged: str = ""
) -> Callable[[Callable[[ServerScenario, str], Awaitable[Issue]]], None]:
    def keep(play: Callable[[ServerScenario, str], Awaitable[Issue]]) -> None:
        name = play.__name__.replace("_", "-")
        CASES[name] = RejectionCase(play, list(expected), logged)

    return keep


async def add_label(server: ServerScenario, thread: Issue, by: str) -> Issue:
    await server.fake_github.add_label(thread, "fix-me", by=by)
    return thread


async def add_comment(server: ServerScenario, thread: Issue, text: str, by: str) -> Issue:
    await server.fake_github.add_comment(thread, text, by=by)
    return thread


def open_pull_request(server: ServerScenario, name: str) -> FakePullRequest:
    """Opens a pull request of a contributor."""
    repo = server.repository(name)
    repo.commit("topic", {"calc.py": "def add(a, b):\n    return a + b\n"})
    return server.fake_github.create_pull(repo, "topic", by="contributor")


# --- missing permissions ------------------------------------------------------------------------------------


@scenario("triager labels it fix-me", NO_WRITE.format("triager"))
async def a_triagers_label(server: ServerScenario, name: str) -> Issue:
    return await add_label(server, server.issue(name), by="triager")


@scenario("member: @agent fix it", NO_WRITE.format("member"))
async def a_member_without_write(server: ServerScenario, name: str) -> Issue:
    return await add_comment(server, server.issue(name), "@agent fix it", by="member")


@scenario("outsider: @agent fix it", NO_WRITE.format("outsider"))
async def an_outsiders_comment(server: ServerScenario, name: str) -> Issue:
    return await add_comment(server, server.issue(name), "@agent fix it", by="outsider")


@scenario(
    "outsider: @agent stop",
    "patchwright[bot]: @outsider needs write access to stop a run. A maintainer can repeat the command.",
)
async def an_outsiders_stop(server: ServerScenario, name: str) -> Issue:
    return await add_comment(server, server.issue(name), "@agent stop", by="outsider")


@scenario("leaver labels it fix-me", NO_WRITE.format("leaver"))
async def who_may_no_more_when_it_begins(server: ServerScenario, name: str) -> Issue:
    issue = server.issue(name)
    server.fake_github.set_role(issue.repo, "leaver", "write")
    server.fake_github.before_next_request(
        "GET",
        f"/{name}/collaborators/leaver/permission",
        lambda: server.fake_github.set_role(issue.repo, "leaver", "none"),
    )
    return await add_label(server, issue, by="leaver")


@scenario("leaver labels it fix-me", logged="@leaver needs write access to start a run")
async def who_cannot_see_it_any_more(server: ServerScenario, name: str) -> Issue:
    return await add_label(server, server.issue(name, private=True), by="leaver")


@scenario("member: @agent fix it", NO_WRITE.format("member"))
async def who_sees_it_but_may_not(server: ServerScenario, name: str) -> Issue:
    return await add_comment(server, server.issue(name, private=True), "@agent fix it", by="member")


# --- unsuitable threads and repositories --------------------------------------------------------------------


@scenario(
    "maintainer labels it fix-me",
    "patchwright[bot]: The issue is closed. Reopen it and ask me again.",
)
async def a_closed_issue(server: ServerScenario, name: str) -> Issue:
    issue = server.issue(name)
    server.fake_github.close_silently(issue)
    return await add_label(server, issue, by="maintainer")


@scenario(
    "maintainer: @agent rebase",
    "patchwright[bot]: The pull request is closed. Reopen it and ask me again.",
)
async def a_closed_pull_request(server: ServerScenario, name: str) -> Issue:
    pull = open_pull_request(server, name)
    server.fake_github.close_silently(pull)
    return await add_comment(server, pull, "@agent rebase", by="maintainer")


@scenario(
    "maintainer labels it fix-me",
    "patchwright[bot]: There is no open review thread here, and you gave no "
    "instructions. Say in a comment what I should change, and mention me.",
)
async def a_pull_request_where_nothing_is_asked(server: ServerScenario, name: str) -> Issue:
    pull = open_pull_request(server, name)
    return await add_label(server, pull, by="maintainer")


@scenario("maintainer labels it fix-me", logged="this conversation is locked")
async def a_locked_issue(server: ServerScenario, name: str) -> Issue:
    issue = server.issue(name)
    server.fake_github.lock_thread(issue)
    return await add_label(server, issue, by="maintainer")


@scenario("maintainer labels it fix-me", logged="this repository is archived")
async def an_archived_repository(server: ServerScenario, name: str) -> Issue:
    issue = server.issue(name)
    issue.repo.archived = True
    return await add_label(server, issue, by="maintainer")


@scenario(
    "maintainer labels it fix-me",
    "patchwright[bot]: This repository has no commits. Push one and ask me again.",
)
async def an_empty_repository(server: ServerScenario, name: str) -> Issue:
    return await add_label(server, server.issue(name, files={}), by="maintainer")


@scenario(
    "maintainer: @agent base=nope fix it",
    "patchwright[bot]: The branch `nope` does not exist in this repository. Name "
    "another branch and ask me again.",
)
async def a_branch_that_is_not_there(server: ServerScenario, name: str) -> Issue:
    return await add_comment(server, server.issue(name), "@agent base=nope fix it", by="maintainer")


@scenario(
    "maintainer labels it fix-me", logged="this issue was deleted or transferred, or I have no access to it"
)
async def an_issue_that_is_deleted_meanwhile(server: ServerScenario, name: str) -> Issue:
    issue = server.issue(name)
    issue.deleted = True
    return await add_label(server, issue, by="maintainer")


@scenario(logged="this issue was deleted or transferred, or I have no access to it")
async def an_issue_that_is_moved_meanwhile(server: ServerScenario, name: str) -> Issue:
    issue = server.issue(name)
    other = server.repository(f"{name}-other")
    server.fake_github.create_issue(other, title="First", body="", by="reporter")
    issue.moved_to = server.fake_github.create_issue(other, title=issue.title, body=issue.body, by="reporter")
    await server.fake_github.add_label(issue, "fix-me", by="maintainer")
    return issue.moved_to


@scenario(
    "maintainer labels it fix-me",
    "patchwright[bot]: The operator has not allowed elsewhere/calc (setting `allowed_repositories`).",
)
async def a_repository_that_is_not_listed(server: ServerScenario, name: str) -> Issue:
    return await add_label(server, server.issue("elsewhere/calc"), by="maintainer")


# --- all cases together -------------------------------------------------------------------------------------


@dataclass
class Timelines:
    """The timelines of all cases: at the end, after redelivery, and after a restart."""

    server: ServerScenario
    threads: dict[str, Issue]
    expected: list[dict[str, list[str]]]


def has_its_reactions(scenario: tuple[str, Issue]) -> bool:
    """Reactions are added in parallel to the run."""
    name, thread = scenario
    return "[eyes]" in str(timeline(thread)) or "[eyes]" not in str(CASES[name].expected)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def timelines() -> AsyncIterator[Timelines]:
    async with open_server_scenario(allowed_repositories="acme/*", max_concurrent_jobs=4) as server:
        timelines = Timelines(server, {}, [])

        def look() -> None:
            timelines.expected.append({name: timeline(thread) for name, thread in timelines.threads.items()})

        async with server.serve():
            for name, scenario in CASES.items():
                timelines.threads[name] = await scenario.play(server, name)
            await server.wait_until_idle()
            await wait_until(lambda: all(map(has_its_reactions, timelines.threads.items())))
            look()
            await server.redeliver_all()
            look()
        async with server.serve():
            await server.redeliver_all()
            look()
        yield timelines


@pytest.mark.parametrize("name", CASES)
async def test_each_rejection_is_posted_with_its_text(timelines: Timelines, name: str) -> None:
    assert timelines.expected[0][name] == CASES[name].expected
    assert CASES[name].logged in timelines.server.log


async def test_no_rejection_is_repeated_after_redeliveries_and_restarts(timelines: Timelines) -> None:
    first, told_again, started_again = timelines.expected
    assert told_again == first
    assert started_again == first


async def test_rejected_requests_neither_reach_the_model_nor_change_a_repository(
    timelines: Timelines,
) -> None:
    assert timelines.server.model.requests == []
    harmless = re.compile(r"/(comments|comments/\d+|reactions|graphql)$")
    assert [write for write in timelines.server.fake_github.writes if not harmless.search(write.path)] == []
    assert {branch for thread in timelines.threads.values() for branch in thread.repo.branches} == {
        "main",
        "topic",
    }
