"""`patchwright serve --poll` works behind a firewall without a webhook, and misses no request."""

import asyncio

import pytest

from tests.end_to_end.conftest import CODE, FIX_TURNS, Scenario

pytestmark = [pytest.mark.slow, pytest.mark.redis]


async def test_a_polling_server_resolves_issues_labeled_before_its_start(scenario: Scenario) -> None:
    await scenario.script_model(*FIX_TURNS)
    scenario.fake_github.add_label_silently(scenario.issue, "fix-me", by="maintainer")
    process = await scenario.cli(
        "serve", "--poll", "--port", "0", environment={"PATCHWRIGHT_WEBHOOK_SECRET": ""}
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
        begins = "patchwright is polling GitHub; set PATCHWRIGHT_OPERATOR_TOKEN for a dashboard at http:"
        assert line.startswith(begins)
        await scenario.wait_for_completion()
    finally:
        process.terminate()
        await process.communicate()
    assert scenario.fake_github.deliveries == ()
    assert scenario.repo.read("patchwright/issue-1", "calc.py") == CODE.replace("a - b", "a + b")
    assert len(scenario.comments) == len(scenario.repo.pulls) == len(scenario.runs) == 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "PATCHWRIGHT_ALLOWED_REPOSITORIES names no repository. With a token, list each as"),
        (
            {"PATCHWRIGHT_ALLOWED_REPOSITORIES": "acme/*"},
            "PATCHWRIGHT_ALLOWED_REPOSITORIES names no repository",
        ),
    ],
)
async def test_polling_with_a_token_requires_repositories(
    scenario: Scenario, given: dict[str, str], expected: str
) -> None:
    await scenario.script_model()
    token = {"PATCHWRIGHT_APP_ID": "", "GITHUB_TOKEN": scenario.fake_github.create_token("maintainer")}
    code, _, error = await scenario.command("serve", "--poll", "--port", "0", environment=token | given)
    assert code == 2
    assert expected in error
