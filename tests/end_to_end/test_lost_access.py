"""Complaint 8: login and token failures are reported in the right place, and a retry works once they are fixed."""

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from patchwright.demo.github import Delivery
from patchwright.demo.recorded_model import ModelFault
from tests.end_to_end.server_scenario import (
    ServerScenario,
    open_server_scenario,
    own_comments,
    timeline,
    wait_until,
)
from tests.end_to_end.test_replies_to_people import OPENED
from tests.preloaded_command import preloaded_command

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("access"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[ServerScenario]:
    async with open_server_scenario() as server, server.serve():
        yield server


def another_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


async def test_with_a_wrong_key_the_server_exits_and_names_the_setting() -> None:
    async with open_server_scenario() as server:
        server.repository("calc")
        process = await asyncio.create_subprocess_exec(
            *preloaded_command(), "serve", "--port", "0",
            env=server.environment | {"PATCHWRIGHT_PRIVATE_KEY": another_key(), "PATCHWRIGHT_MODEL_BASE_URL": "http://x"},
            cwd=server.data, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, error = await process.communicate()
    assert (process.returncode, out.decode()) == (2, "")
    assert error.decode() == (
        "patchwright: GET app: GitHub returned 401: A JSON web token could not be decoded. Check GITHUB_TOKEN, or "
        "PATCHWRIGHT_APP_ID and its private key.\n"
    )


async def test_an_uninstalled_app_is_logged_and_the_job_starts_after_reinstallation(
    server: ServerScenario,
) -> None:
    issue = server.issue("uninstalled")
    there = server.installations["uninstalled"].repositories
    there.remove(issue.repo)
    await server.fake_github.add_label(issue, "fix-me", by="maintainer")
    async with asyncio.timeout(60):
        while "GitHub does not show acme/uninstalled at the moment" not in server.log:
            await asyncio.sleep(0.1)
    assert timeline(issue) == ["maintainer labels it fix-me"]
    assert "the app is not installed on acme/uninstalled: ask the owner to install it" in server.log
    there.append(issue.repo)
    await server.wait_until_idle()
    assert timeline(issue)[1:] == [OPENED.format(2)]


async def test_a_revoked_key_is_logged_and_a_retry_works_with_a_valid_one(
    server: ServerScenario,
) -> None:
    issue, good = server.issue("revoked"), server.app.public_key_pem
    server.app.public_key_pem = server.fake_github.create_app("other").public_key_pem
    await server.fake_github.add_label(issue, "fix-me", by="maintainer")
    await server.wait_until_idle()
    assert timeline(issue) == ["maintainer labels it fix-me"]
    assert "GitHub returned 401: A JSON web token could not be decoded" in server.log
    server.app.public_key_pem = good
    await server.fake_github.add_comment(issue, "@agent retry", by="maintainer")
    await server.wait_until_idle()
    assert timeline(issue)[1:] == ["maintainer: @agent retry [eyes]", OPENED.format(2)]


async def test_tokens_that_expire_during_a_run_are_renewed_silently(server: ServerScenario) -> None:
    issue = server.issue("expired")
    server.block_run("expired")
    await server.fake_github.add_label(issue, "fix-me", by="maintainer")
    await server.wait_for_requests("expired")
    server.fake_github.expire_tokens()
    server.unblock_run("expired")
    await server.wait_until_idle()
    assert timeline(issue) == ["maintainer labels it fix-me", OPENED.format(2)]


async def test_a_rejected_model_key_is_reported_and_resume_continues_the_run(
    server: ServerScenario,
) -> None:
    issue = server.issue("unpaid")
    server.block_run("unpaid")
    await server.fake_github.add_label(issue, "fix-me", by="maintainer")
    await server.wait_for_requests("unpaid")
    refused = {"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}}
    server.model.add_faults(ModelFault(status=401, body=json.dumps(refused)))
    server.unblock_run("unpaid")
    await server.wait_until_idle()
    (text,) = own_comments(issue)
    why, kept, how, *_ = text.split("\n\n")
    assert why.startswith(
        "I had to stop before I finished. The provider of openai/scripted rejects the API key (401): "
        "check `PATCHWRIGHT_MODEL_API_KEY`, or, if no key is set or saved, the provider's own variable."
    )
    assert kept.startswith("The work so far (1 file) is on the branch `patchwright/issue-1-after-2-steps`.")
    assert how.startswith("**To continue** from where I stopped, comment `@agent resume`.")
    await server.fake_github.add_comment(issue, "@agent resume", by="maintainer")
    await server.wait_until_idle()
    assert timeline(issue)[2:] == ["maintainer: @agent resume [eyes]", OPENED.format(2)]


async def test_a_missing_app_permission_is_reported_with_its_page_and_a_retry_works_once_granted(
    server: ServerScenario,
) -> None:
    one, request_count, had = (
        server.issue("ungranted"),
        len(server.model.requests),
        dict(server.app.permissions),
    )
    two = server.fake_github.create_issue(
        one.repo, title="The other one", body="It should add.", by="reporter"
    )
    server.app.permissions["contents"] = "read"
    try:
        await server.fake_github.add_label(one, "fix-me", by="maintainer")
        await server.wait_until_idle()
        await server.fake_github.add_comment(two, "@agent fix it", by="maintainer")
        await server.wait_until_idle()
    finally:
        server.app.permissions.update(had)
    page = f"{server.fake_github.server_url}/settings/installations/{server.installations['ungranted'].id}"
    assert timeline(one) == [
        "maintainer labels it fix-me",
        "patchwright[bot]: The GitHub App needs more permissions here: `contents: "
        f"write`. Ask an owner to grant them at {page}. Then add the label again or ask me in a comment.",
    ]
    comments = f"{server.fake_github.server_url}/acme/ungranted/issues/1#issuecomment-{one.comments[0].id}"
    assert timeline(two) == [
        "maintainer: @agent fix it [eyes]",
        "patchwright[bot]: The GitHub App still needs `contents: write` here. See "
        f"{comments} for instructions.",
    ]
    assert len(server.model.requests) == request_count
    await server.fake_github.add_comment(one, "@agent retry", by="maintainer")
    await server.wait_until_idle()
    assert timeline(one)[2:] == ["maintainer: @agent retry [eyes]", OPENED.format(3)]


async def test_a_requester_without_write_access_at_the_end_learns_that_nothing_is_published(
    server: ServerScenario,
) -> None:
    issue = server.issue("withdrawn")
    server.block_run("withdrawn")
    await server.fake_github.add_label(issue, "fix-me", by="maintainer")
    await server.wait_for_requests("withdrawn")
    server.fake_github.set_role(issue.repo, "maintainer", "read")
    server.unblock_run("withdrawn")
    await server.wait_until_idle()
    assert timeline(issue) == [
        "maintainer labels it fix-me",
        "patchwright[bot]: I published nothing: @maintainer no longer has "
        "write access. A maintainer can add the label.",
    ]
    assert (issue.repo.branches, issue.repo.pulls) == (("main",), ())
    await server.fake_github.add_comment(issue, "@agent retry", by="colleague")
    await server.wait_until_idle()
    assert timeline(issue)[2:] == ["colleague: @agent retry [eyes]", OPENED.format(2)]


async def test_a_run_whose_app_is_uninstalled_stops_and_reports_it_after_reinstallation(
    server: ServerScenario,
) -> None:
    issue, place = server.issue("taken"), server.installations["taken"]
    server.block_run("taken")
    await server.fake_github.add_label(issue, "fix-me", by="maintainer")
    await server.wait_for_requests("taken")
    place.repositories.remove(issue.repo)
    # The next request checks the requester's write access; by then the App is installed again.
    server.fake_github.before_next_request(
        "GET", "/taken/collaborators/maintainer/permission", lambda: place.repositories.append(issue.repo)
    )
    await server.fake_github.redeliver(removal_delivery(server, "taken"))
    await wait_until(lambda: issue.repo in place.repositories)
    server.unblock_run("taken")
    await server.wait_until_idle()
    assert timeline(issue) == [
        "maintainer labels it fix-me",
        "patchwright[bot]: I had to stop before I finished. My access to this repository was revoked.",
    ]
    await server.fake_github.add_comment(issue, "@agent resume", by="maintainer")
    await server.wait_until_idle()
    assert timeline(issue)[2:] == ["maintainer: @agent resume [eyes]", OPENED.format(2)]


def removal_delivery(server: ServerScenario, name: str) -> Delivery:
    """Returns the delivery that an App receives when an owner removes it from a repository."""
    gone = {"full_name": f"acme/{name}"}
    body = {
        "action": "removed",
        "installation": {"id": server.installations[name].id},
        "repositories_removed": [gone],
    }
    text = json.dumps(body).encode()
    return Delivery(server.hook, str(uuid4()), "installation_repositories", "removed", text, status=None)
