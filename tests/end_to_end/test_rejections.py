"""Every refusal as a conversation: why, in these words and once, whatever is told again or started again."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from patchwright.demo.github import FakePullRequest, Issue
from tests.end_to_end.server_scenario import Town, a_town, conversation, until

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("refusals"),
]

NO_WRITE = (
    "patchwright[bot]: I did not start a run: {} does not have write access to this repository. "
    "Someone with write access can add the label or ask me in a comment."
)


@dataclass
class Scene:
    """What somebody does in a thread of its own, and what is seen there in the end."""

    play: Callable[[Town, str], Awaitable[Issue]]
    seen: list[str]
    logged: str = ""
    """What its operator reads where nobody else can be told."""


SCENES: dict[str, Scene] = {}


def scene(*seen: str, logged: str = "") -> Callable[[Callable[[Town, str], Awaitable[Issue]]], None]:
    def keep(play: Callable[[Town, str], Awaitable[Issue]]) -> None:
        name = play.__name__.replace("_", "-")
        SCENES[name] = Scene(play, list(seen), logged)

    return keep


async def labeled(town: Town, thread: Issue, by: str) -> Issue:
    await town.world.add_label(thread, "fix-me", by=by)
    return thread


async def asked(town: Town, thread: Issue, said: str, by: str) -> Issue:
    await town.world.add_comment(thread, said, by=by)
    return thread


def contributed(town: Town, name: str) -> FakePullRequest:
    """A pull request of somebody else's."""
    repo = town.repository(name)
    repo.commit("topic", {"calc.py": "def add(a, b):\n    return a + b\n"})
    return town.world.create_pull(repo, "topic", by="contributor")


# --- who may not --------------------------------------------------------------------------------------------


@scene("triager labels it fix-me", NO_WRITE.format("triager"))
async def a_triagers_label(town: Town, name: str) -> Issue:
    return await labeled(town, town.issue(name), by="triager")


@scene("member: @agent mend it", NO_WRITE.format("member"))
async def a_member_without_write(town: Town, name: str) -> Issue:
    return await asked(town, town.issue(name), "@agent mend it", by="member")


@scene("outsider: @agent mend it", NO_WRITE.format("outsider"))
async def an_outsiders_comment(town: Town, name: str) -> Issue:
    return await asked(town, town.issue(name), "@agent mend it", by="outsider")


@scene("outsider: @agent stop", NO_WRITE.format("outsider"))
async def an_outsiders_stop(town: Town, name: str) -> Issue:
    return await asked(town, town.issue(name), "@agent stop", by="outsider")


@scene("leaver labels it fix-me", NO_WRITE.format("leaver"))
async def who_may_no_more_when_it_begins(town: Town, name: str) -> Issue:
    issue = town.issue(name)
    town.world.set_role(issue.repo, "leaver", "write")
    town.world.before_next_request(
        "GET",
        f"/{name}/collaborators/leaver/permission",
        lambda: town.world.set_role(issue.repo, "leaver", "none"),
    )
    return await labeled(town, issue, by="leaver")


@scene("leaver labels it fix-me", logged="leaver does not have write access to this repository")
async def who_cannot_see_it_any_more(town: Town, name: str) -> Issue:
    return await labeled(town, town.issue(name, private=True), by="leaver")


@scene("member: @agent mend it", NO_WRITE.format("member"))
async def who_sees_it_but_may_not(town: Town, name: str) -> Issue:
    return await asked(town, town.issue(name, private=True), "@agent mend it", by="member")


# --- where nothing can be done ------------------------------------------------------------------------------


@scene(
    "maintainer labels it fix-me",
    "patchwright[bot]: I did not start a run: the issue is closed. Reopen it and ask me again.",
)
async def a_closed_issue(town: Town, name: str) -> Issue:
    issue = town.issue(name)
    town.world.close_silently(issue)
    return await labeled(town, issue, by="maintainer")


@scene(
    "maintainer: @agent rebase [eyes]",
    "patchwright[bot]: I did not start a run: the pull request is closed. Reopen it and ask me again.",
)
async def a_closed_pull_request(town: Town, name: str) -> Issue:
    pull = contributed(town, name)
    town.world.close_silently(pull)
    return await asked(town, pull, "@agent rebase", by="maintainer")


@scene(
    "maintainer labels it fix-me",
    "patchwright[bot]: I did not start a run: there is no open review thread here, and you gave no "
    "instructions. Say in a review or a comment what I should change, and mention me.",
)
async def a_pull_request_where_nothing_is_asked(town: Town, name: str) -> Issue:
    pull = contributed(town, name)
    return await labeled(town, pull, by="maintainer")


@scene("maintainer labels it fix-me", logged="this conversation is locked")
async def a_locked_issue(town: Town, name: str) -> Issue:
    issue = town.issue(name)
    town.world.lock_thread(issue)
    return await labeled(town, issue, by="maintainer")


@scene("maintainer labels it fix-me", logged="this repository is archived")
async def an_archived_repository(town: Town, name: str) -> Issue:
    issue = town.issue(name)
    issue.repo.archived = True
    return await labeled(town, issue, by="maintainer")


@scene(
    "maintainer labels it fix-me",
    "patchwright[bot]: I did not start a run: this repository has no commits. Push one and ask me again.",
)
async def an_empty_repository(town: Town, name: str) -> Issue:
    return await labeled(town, town.issue(name, files={}), by="maintainer")


@scene(
    "maintainer: @agent base=nope mend it [eyes]",
    "patchwright[bot]: I did not start a run: the branch `nope` does not exist in this repository. Name "
    "another branch and ask me again.",
)
async def a_branch_that_is_not_there(town: Town, name: str) -> Issue:
    return await asked(town, town.issue(name), "@agent base=nope mend it", by="maintainer")


@scene("maintainer labels it fix-me", logged="it was deleted or transferred, or I have no access to it")
async def an_issue_that_is_deleted_meanwhile(town: Town, name: str) -> Issue:
    issue = town.issue(name)
    issue.deleted = True
    return await labeled(town, issue, by="maintainer")


@scene(logged="it was deleted or transferred, or I have no access to it")
async def an_issue_that_is_moved_meanwhile(town: Town, name: str) -> Issue:
    issue = town.issue(name)
    other = town.repository(f"{name}-other")
    town.world.create_issue(other, title="First", body="", by="reporter")
    issue.moved_to = town.world.create_issue(other, title=issue.title, body=issue.body, by="reporter")
    await town.world.add_label(issue, "fix-me", by="maintainer")
    return issue.moved_to


@scene(
    "maintainer labels it fix-me",
    "patchwright[bot]: I did not start a run: the operator has not allowed elsewhere/calc (setting "
    "`allowed_repositories`).",
)
async def a_repository_that_is_not_listed(town: Town, name: str) -> Issue:
    return await labeled(town, town.issue("elsewhere/calc"), by="maintainer")


# --- all of them together -----------------------------------------------------------------------------------


@dataclass
class Played:
    """All scenes, as they are seen when they are over, when all was told again, and behind a new start."""

    town: Town
    threads: dict[str, Issue]
    seen: list[dict[str, list[str]]]


def has_its_reactions(scene: tuple[str, Issue]) -> bool:
    """They are given beside the work."""
    name, thread = scene
    return "[eyes]" in str(conversation(thread)) or "[eyes]" not in str(SCENES[name].seen)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def played() -> AsyncIterator[Played]:
    async with a_town(allowed_repositories="acme/*", max_concurrent_jobs=4) as town:
        played = Played(town, {}, [])

        def look() -> None:
            played.seen.append({name: conversation(thread) for name, thread in played.threads.items()})

        async with town.serving():
            for name, scene in SCENES.items():
                played.threads[name] = await scene.play(town, name)
            await town.quiet()
            await until(lambda: all(map(has_its_reactions, played.threads.items())))
            look()
            await town.again()
            look()
        async with town.serving():
            await town.again()
            look()
        yield played


@pytest.mark.parametrize("name", SCENES)
async def test_a_refusal_is_said_in_these_words(played: Played, name: str) -> None:
    assert played.seen[0][name] == SCENES[name].seen
    assert SCENES[name].logged in played.town.log


async def test_no_refusal_is_said_a_second_time_whatever_is_told_or_started_again(played: Played) -> None:
    first, told_again, started_again = played.seen
    assert told_again == first
    assert started_again == first


async def test_nothing_that_is_refused_reaches_the_model_or_changes_a_repository(played: Played) -> None:
    assert played.town.model.requests == []
    harmless = re.compile(r"/(comments|comments/\d+|reactions|graphql)$")
    assert [write for write in played.town.world.writes if not harmless.search(write.path)] == []
    assert {branch for thread in played.threads.values() for branch in thread.repo.branches} == {
        "main",
        "topic",
    }
