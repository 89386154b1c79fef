"""Commits that strangers could influence start nothing in CI until a writer has seen them."""

from typing import Any

import pytest

from bot import compose
from bot.github.rest import Pace
from demo.model import Turn
from demo.world import Pull
from resolver.ci.release import run_ci
from resolver.domain import Commented, Delivered, PullRequest, Refused
from tests.stories.conftest import Scene
from tests.stories.parcels import Depot
from tests.stories.reviews import MUL, THREADS, WIP, asked, done

WORKFLOW = {".github/workflows/ci.yml": "on: [push, pull_request]\n"}


def message(scene: Depot | Scene, pull: Pull) -> str:
    return scene.repo.bare.git("show", "-s", "--format=%B", pull.head.sha).decode()


async def test_what_an_outsider_asked_for_is_held_and_the_pull_request_says_so(depot: Depot) -> None:
    await depot.deliver()
    (pull,) = depot.pulls
    assert message(depot, pull).startswith("Fix: add(2, 3) gives -1\n\n[skip ci]\n\nadd() subtracted.")
    assert (
        "Continuous integration is held: my commit says `[skip ci]`, because I was told things by reporter, who may "
        "not write to this repository. Have a look at the change; then somebody who may write here starts it with "
        "`@agent run-ci`." in pull.body
    )


@pytest.mark.parametrize(
    ("setting", "writer", "held"),
    [("never", False, False), ("untrusted", True, False), ("always", True, True)],
)
async def test_what_is_held_is_for_the_operator_to_say(
    depot: Depot, setting: str, writer: bool, held: bool
) -> None:
    depot.settings = {"hold_ci": setting}
    if writer:
        depot.world.permit(depot.repo, "reporter", "write")
    await depot.deliver()
    (pull,) = depot.pulls
    assert ("[skip ci]" in message(depot, pull), "run-ci" in pull.body) == (held, held)


HELD = "Fix: the sum\n\n[skip ci]\n\nIssue: #1\nPatchwright-Run: first\n"


def held(scene: Scene) -> Pull:
    """Our own pull request, whose commit is held."""
    scene.repo.commit("patchwright/issue-1", {"calc.py": WIP}, HELD)
    return scene.world.pull(scene.repo, "patchwright/issue-1", by="patchwright[bot]", title="Fix: the sum")


def answers(pull: Pull) -> list[str]:
    return [one.body.partition("\n")[2].strip() for one in pull.comments if "patchwright:" in one.body]


async def test_a_writer_releases_it_by_an_empty_commit_and_nothing_is_pushed_over(scene: Scene) -> None:
    pull = held(scene)
    before = pull.head.sha
    await scene.will()
    job = asked(scene, pull, command="run-ci")
    outcome = await scene.resolve(job)
    assert isinstance(outcome, Commented)
    after = pull.head.sha
    assert scene.repo.bare.git("rev-parse", f"{after}^", f"{after}^{{tree}}").decode().split() == [
        before, scene.repo.bare.git("rev-parse", f"{before}^{{tree}}").decode().strip(),
    ]  # fmt: skip
    assert message(scene, pull).startswith(
        "Start continuous integration\n\n"
        "Nothing is changed: the commits below were held until somebody who may\n"
        "write to the repository had seen them.\n\nPull-request: #"
    )
    assert "[skip ci]" not in message(scene, pull) and "Co-authored-by: maintainer" in message(scene, pull)
    assert answers(pull) == [
        f"I put the empty commit {after[:12]} on `patchwright/issue-1`: it does not say `[skip ci]`, so continuous "
        "integration starts on what is there now. When you merge by squashing, take `[skip ci]` out of the message, "
        "or it is skipped on `main` too."
    ]
    log = scene.data / "runs" / job.id / "events.jsonl"
    log.unlink()  # killed before it could note what it did
    await scene.resolve(job)
    assert (pull.head.sha, len(answers(pull))) == (after, 1)
    again = asked(scene, pull, command="please run ci").model_copy(update={"id": "again"})
    await scene.resolve(again)
    assert pull.head.sha == after
    assert answers(pull)[1] == (
        "Nothing is held here: the last commit on `patchwright/issue-1` does not say `[skip ci]`, so continuous "
        "integration started when it was pushed, if there is any. To have it run again, use the button of the check "
        "itself."
    )


async def test_an_outsider_cannot_release_it(scene: Scene) -> None:
    pull = held(scene)
    before = pull.head.sha
    await scene.will()
    outcome = await scene.resolve(asked(scene, pull, command="run-ci", by="reporter"))
    assert isinstance(outcome, Refused)
    assert pull.head.sha == before
    assert answers(pull) == [
        "I did not start on this: reporter may not write to this repository. "
        "Somebody who may can put the label on, or ask me in a comment."
    ]


async def test_a_release_that_somebodys_push_overtakes_does_nothing(scene: Scene) -> None:
    pull = held(scene)
    await scene.will()
    push = lambda: scene.repo.commit("patchwright/issue-1", {"more.py": "1\n"})  # noqa: E731
    scene.world.before_next("GET", "/git/ref/heads/patchwright/issue-1", push)
    await scene.resolve(asked(scene, pull, command="run-ci"))
    assert answers(pull) == [
        "Somebody pushed to `patchwright/issue-1` at this moment, so I did nothing: continuous integration starts on "
        "their commit, unless it says otherwise."
    ]
    assert scene.repo.bare.count("main", "patchwright/issue-1") == 2


async def is_not_released(scene: Scene, pull: Pull, why: str) -> None:
    """A writer's word for it is answered so, and no branch moves."""
    before = pull.head.sha
    await scene.will()
    outcome = await scene.resolve(asked(scene, pull, command="run-ci"))
    assert isinstance(outcome, Commented) and outcome.branch is None
    assert (answers(pull), pull.head.sha) == ([why], before)


async def test_a_release_on_a_fork_that_lets_nobody_in_is_left_to_its_author(scene: Scene) -> None:
    fork = scene.world.fork(scene.repo, "contributor")
    fork.commit("topic", {"calc.py": WIP}, HELD)
    pull = scene.world.pull(scene.repo, "topic", by="contributor", title="Multiply", fork=fork)
    await is_not_released(
        scene, pull,
        "I cannot start it: the fork that this comes from does not let the people of this repository push to it. Its "
        "author can, by any commit that does not say `[skip ci]`.",
    )  # fmt: skip


async def test_a_release_on_a_fork_that_is_gone_is_not_laid_on_its_owner(scene: Scene) -> None:
    """GitHub answers null for it. Its own description, which the stand-in keeps to, has no null there."""
    pull = held(scene)
    job = asked(scene, pull, command="run-ci")
    settings = compose.read_settings({}, scene.environment, None, None)
    async with (
        compose.kit(settings, trusted=False, say=print) as kit,
        compose.forge(settings, Pace(between_writes=0)) as forge,
    ):
        thread = await forge.thread(job)
        assert isinstance(thread, PullRequest)
        gone = thread.model_copy(update={"head_repo": None, "same_repository": False})
        await run_ci(job, gone, await forge.facts(job.repo), kit, forge)
    assert answers(pull) == ["I cannot start it: the repository or the branch that this comes from is gone."]


async def test_a_release_by_a_workflows_own_token_is_said_to_start_nothing(scene: Scene) -> None:
    pull = held(scene)
    token = scene.world.installation_token(scene.world.install(scene.world.app("github-actions"), scene.repo))
    for name in ("PATCHWRIGHT_APP_ID", "PATCHWRIGHT_PRIVATE_KEY"):
        del scene.environment[name]
    scene.environment["GITHUB_TOKEN"] = token
    await is_not_released(
        scene, pull,
        "I cannot start it: GitHub starts no workflows on what the token of a workflow (`GITHUB_TOKEN`) pushes, and "
        "that is all I have. Close this pull request and open it again, or push to its branch.",
    )  # fmt: skip


async def test_a_release_that_github_does_not_take_says_so_in_githubs_words(scene: Scene) -> None:
    pull = held(scene)
    scene.repo.protect("patchwright/*", "Only people push here.")
    await is_not_released(
        scene, pull,
        "I cannot start it: GitHub did not take an empty commit on `patchwright/issue-1`: "
        f"{scene.world.server_url}/acme/calc.git refuses a push to patchwright/issue-1: remote: error: GH006: "
        "Protected branch update failed for refs/heads/patchwright/issue-1.",
    )  # fmt: skip


async def test_a_release_puts_nothing_on_the_default_branch(scene: Scene) -> None:
    pull = held(scene)
    scene.repo.bare.git("symbolic-ref", "HEAD", "refs/heads/patchwright/issue-1")
    scene.repo.default_branch = "patchwright/issue-1"
    await is_not_released(
        scene, pull,
        "I cannot start it: its branch is this repository's default branch, which I never write to.",
    )  # fmt: skip


async def follow(scene: Scene, pull: Pull, comment: str = "@agent") -> str:
    """A writer's review of one thread, done; the status comment."""
    review = scene.world.reviewed(pull, THREADS[0], by="maintainer", body=comment)
    await scene.will(Turn("Mend.", MUL), *[Turn("Done.", done((1, True, "It multiplies.")))] * 2)
    assert isinstance(await scene.resolve(asked(scene, pull, review)), Delivered)
    return answers(pull)[-1]


@pytest.mark.slow
async def test_what_goes_on_top_of_a_held_commit_is_held_and_of_a_released_one_is_not(
    a_scene: Any,
) -> None:
    scene = a_scene({"calc.py": "def add(a, b):\n    return a - b\n\n\ndef double(a):\n    return a * 2\n"})
    pull = held(scene)
    said = await follow(scene, pull)
    assert "[skip ci]" in message(scene, pull)
    assert "Continuous integration is held: my commit says `[skip ci]`, as the one below it does." in said
    scene.repo.commit("patchwright/issue-1", {"calc.py": WIP}, "A writer's own")
    said = await follow(scene, pull)
    assert "[skip ci]" not in message(scene, pull) and "held" not in said


@pytest.mark.parametrize("workflows", [True, False])
async def test_where_a_workflows_own_token_pushes_nothing_starts_and_that_is_said(
    depot: Depot, workflows: bool
) -> None:
    """Complaint 3: CI does not run on the bot's commits."""
    if workflows:
        depot.repo.commit("main", WORKFLOW)
    depot.app, depot.plain = depot.world.app("github-actions"), True
    await depot.deliver()
    (pull,) = depot.pulls
    assert "[skip ci]" not in message(depot, pull)
    told = (
        "GitHub starts no workflows on what the token of a workflow (`GITHUB_TOKEN`) pushes. To have them run here, "
        "close this pull request and open it again, or push to its branch. With a GitHub App's or a personal token in "
        "its place they start by themselves."
    )
    assert (told in pull.body) == workflows


async def test_an_apps_token_that_is_given_as_it_is_is_not_taken_for_a_workflows_own(depot: Depot) -> None:
    depot.repo.commit("main", WORKFLOW)
    depot.world.app("github-actions")  # its account is there, as it is on GitHub
    depot.plain = True
    await depot.deliver()
    (pull,) = depot.pulls
    assert "[skip ci]" in message(depot, pull)
    assert "`@agent run-ci`" in pull.body and "GITHUB_TOKEN" not in pull.body
