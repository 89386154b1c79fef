"""Complaint 8: sign-in and token failures. What is said, where, and that it works when it was fixed."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from patchwright.demo.github import Delivery
from patchwright.demo.recorded_model import ModelFault
from tests.end_to_end.server_scenario import Town, a_town, conversation, ours, until
from tests.end_to_end.test_replies_to_people import OPENED

pytestmark = [
    pytest.mark.redis,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("access"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def town() -> AsyncIterator[Town]:
    async with a_town() as town, town.serving():
        yield town


def another_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


async def test_with_a_wrong_key_the_server_does_not_begin_and_says_which_setting_to_mend() -> None:
    async with a_town() as town:
        town.repository("calc")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "patchwright", "serve", "--port", "0",
            env=town.environment | {"PATCHWRIGHT_PRIVATE_KEY": another_key(), "PATCHWRIGHT_MODEL_BASE_URL": "http://x"},
            cwd=town.data, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, error = await process.communicate()
    assert (process.returncode, out.decode()) == (2, "")
    assert error.decode() == (
        "patchwright: GET app: GitHub returned 401: A JSON web token could not be decoded. Check GITHUB_TOKEN, or "
        "PATCHWRIGHT_APP_ID and its private key.\n"
    )


async def test_where_the_app_was_taken_away_its_operator_reads_it_and_a_retry_works_when_it_is_back(
    town: Town,
) -> None:
    issue = town.issue("uninstalled")
    there = town.installed["uninstalled"].repositories
    there.remove(issue.repo)
    await town.world.add_label(issue, "fix-me", by="maintainer")
    await town.quiet()
    assert conversation(issue) == ["maintainer labels it fix-me"]
    assert "the app is not installed on acme/uninstalled: ask its owner to install it" in town.log
    there.append(issue.repo)
    await town.world.add_comment(issue, "@agent retry", by="maintainer")
    await town.quiet()
    assert conversation(issue)[1:] == ["maintainer: @agent retry [eyes]", OPENED.format(2)]


async def test_a_key_that_was_revoked_is_said_to_the_operator_and_a_retry_works_with_a_good_one(
    town: Town,
) -> None:
    issue, good = town.issue("revoked"), town.app.public_key_pem
    town.app.public_key_pem = town.world.create_app("other").public_key_pem
    await town.world.add_label(issue, "fix-me", by="maintainer")
    await town.quiet()
    assert conversation(issue) == ["maintainer labels it fix-me"]
    assert "GitHub returned 401: A JSON web token could not be decoded" in town.log
    town.app.public_key_pem = good
    await town.world.add_comment(issue, "@agent retry", by="maintainer")
    await town.quiet()
    assert conversation(issue)[1:] == ["maintainer: @agent retry [eyes]", OPENED.format(2)]


async def test_tokens_that_expire_in_mid_run_are_renewed_without_a_word(town: Town) -> None:
    issue = town.issue("expired")
    town.held("expired")
    await town.world.add_label(issue, "fix-me", by="maintainer")
    await town.at_work("expired")
    town.world.expire_tokens()
    town.go_on("expired")
    await town.quiet()
    assert conversation(issue) == ["maintainer labels it fix-me", OPENED.format(2)]


async def test_a_models_key_that_is_refused_in_mid_run_is_told_and_resume_goes_on_with_the_work(
    town: Town,
) -> None:
    issue = town.issue("unpaid")
    town.held("unpaid")
    await town.world.add_label(issue, "fix-me", by="maintainer")
    await town.at_work("unpaid")
    refused = {"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}}
    town.model.add_faults(ModelFault(status=401, body=json.dumps(refused)))
    town.go_on("unpaid")
    await town.quiet()
    (said,) = ours(issue)
    why, kept, how, *_ = said.split("\n\n")
    assert why.startswith(
        "I had to stop before I finished. The provider of openai/scripted rejects the API key (401): "
        "check `PATCHWRIGHT_MODEL_API_KEY`, or the provider's own variable."
    )
    assert kept.startswith("The work so far (1 file) is on the branch `patchwright/issue-1-after-2-steps`.")
    assert how.startswith("**To continue** from where I stopped, comment `@agent resume`.")
    await town.world.add_comment(issue, "@agent resume", by="maintainer")
    await town.quiet()
    assert conversation(issue)[2:] == ["maintainer: @agent resume [eyes]", OPENED.format(2)]


async def test_a_permission_that_the_app_lacks_is_said_with_its_page_and_a_retry_works_when_it_is_granted(
    town: Town,
) -> None:
    one, asked, had = town.issue("ungranted"), len(town.model.requests), dict(town.app.permissions)
    two = town.world.create_issue(one.repo, title="The other one", body="It should add.", by="reporter")
    town.app.permissions["contents"] = "read"
    try:
        await town.world.add_label(one, "fix-me", by="maintainer")
        await town.quiet()
        await town.world.add_comment(two, "@agent mend it", by="maintainer")
        await town.quiet()
    finally:
        town.app.permissions.update(had)
    page = f"{town.world.server_url}/settings/installations/{town.installed['ungranted'].id}"
    assert conversation(one) == [
        "maintainer labels it fix-me",
        "patchwright[bot]: I did not start a run: the GitHub App needs more permissions here: `contents: "
        f"write`. Ask an owner to grant them at {page}. Then add the label again or ask me in a comment.",
    ]
    said = f"{town.world.server_url}/acme/ungranted/issues/1#issuecomment-{one.comments[0].id}"
    assert conversation(two) == [
        "maintainer: @agent mend it [eyes]",
        "patchwright[bot]: I did not start a run: the GitHub App still needs `contents: write` here. See "
        f"{said} for how to grant it.",
    ]
    assert len(town.model.requests) == asked
    await town.world.add_comment(one, "@agent retry", by="maintainer")
    await town.quiet()
    assert conversation(one)[2:] == ["maintainer: @agent retry [eyes]", OPENED.format(3)]


async def test_whoever_asked_and_may_write_no_more_in_the_end_is_told_that_nothing_is_published(
    town: Town,
) -> None:
    issue = town.issue("withdrawn")
    town.held("withdrawn")
    await town.world.add_label(issue, "fix-me", by="maintainer")
    await town.at_work("withdrawn")
    town.world.set_role(issue.repo, "maintainer", "read")
    town.go_on("withdrawn")
    await town.quiet()
    assert conversation(issue) == [
        "maintainer labels it fix-me",
        "patchwright[bot]: I worked on this but did not publish the result: maintainer no longer has "
        "write access to this repository. Someone with write access can add the label or ask me in a "
        "comment.",
    ]
    assert (issue.repo.branches, issue.repo.pulls) == (("main",), ())
    await town.world.add_comment(issue, "@agent retry", by="colleague")
    await town.quiet()
    assert conversation(issue)[2:] == ["colleague: @agent retry [eyes]", OPENED.format(2)]


async def test_a_run_whose_app_is_taken_away_stops_and_says_so_where_it_was_given_back_at_once(
    town: Town,
) -> None:
    issue, place = town.issue("taken"), town.installed["taken"]
    town.held("taken")
    await town.world.add_label(issue, "fix-me", by="maintainer")
    await town.at_work("taken")
    place.repositories.remove(issue.repo)
    # The next that is asked is whether whoever wanted the work may still write: then it is there again.
    town.world.before_next_request(
        "GET", "/taken/collaborators/maintainer/permission", lambda: place.repositories.append(issue.repo)
    )
    await town.world.redeliver(taken_away(town, "taken"))
    await until(lambda: issue.repo in place.repositories)
    town.go_on("taken")
    await town.quiet()
    assert conversation(issue) == [
        "maintainer labels it fix-me",
        "patchwright[bot]: I had to stop before I finished. My access to this repository was revoked.",
    ]
    await town.world.add_comment(issue, "@agent resume", by="maintainer")
    await town.quiet()
    assert conversation(issue)[2:] == ["maintainer: @agent resume [eyes]", OPENED.format(2)]


def taken_away(town: Town, name: str) -> Delivery:
    """What an App is told when an owner takes it out of a repository."""
    gone = {"full_name": f"acme/{name}"}
    body = {
        "action": "removed",
        "installation": {"id": town.installed[name].id},
        "repositories_removed": [gone],
    }
    told = json.dumps(body).encode()
    return Delivery(town.hook, str(uuid4()), "installation_repositories", "removed", told, status=None)
