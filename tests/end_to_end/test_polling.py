"""`patchwright serve --poll`: behind a firewall, without a webhook, and nothing asked for is missed."""

import asyncio

import pytest

from tests.end_to_end.conftest import CODE, MENDED, Scene

pytestmark = [pytest.mark.slow, pytest.mark.redis]


async def test_a_server_that_polls_mends_what_was_labeled_before_it_began(scene: Scene) -> None:
    await scene.will(*MENDED)
    scene.world.add_label_silently(scene.issue, "fix-me", by="maintainer")
    process = await scene.cli(
        "serve", "--poll", "--port", "0", environment={"PATCHWRIGHT_WEBHOOK_SECRET": ""}
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
        begins = "patchwright is polling GitHub; set PATCHWRIGHT_OPERATOR_TOKEN for a dashboard at http:"
        assert line.startswith(begins)
        await scene.settled()
    finally:
        process.terminate()
        await process.communicate()
    assert scene.world.deliveries == ()
    assert scene.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert len(scene.comments) == len(scene.repo.pulls) == len(scene.runs) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "PATCHWRIGHT_POLLED_REPOSITORIES is not set. With a token, list the repositories as"),
        (
            {"PATCHWRIGHT_POLLED_REPOSITORIES": "acme"},
            "acme in PATCHWRIGHT_POLLED_REPOSITORIES is not a repository",
        ),
    ],
)
async def test_polling_with_a_token_needs_to_know_where(
    scene: Scene, given: dict[str, str], said: str
) -> None:
    await scene.will()
    token = {"PATCHWRIGHT_APP_ID": "", "GITHUB_TOKEN": scene.world.create_token("maintainer")}
    code, _, error = await scene.command("serve", "--poll", "--port", "0", environment=token | given)
    assert code == 2
    assert said in error
