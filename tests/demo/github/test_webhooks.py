"""Webhooks are signed, shaped and repeated as GitHub does it."""

import asyncio
import hashlib
import hmac
import json
import socket
from collections.abc import AsyncIterator, Callable

import httpx
import pytest
import uvicorn

from patchwright.demo.asgi import AsgiMessage, Receive, Send, read_body, read_headers, respond
from patchwright.demo.github import FakeGitHub, Repository
from patchwright.demo.loopback_server import LoopbackUvicorn

Client = Callable[..., httpx.AsyncClient]


class Receiver:
    """A server on the loopback interface that records the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.coming: asyncio.Queue[bytes] = asyncio.Queue()
        self.status = 202


@pytest.fixture
async def receiver(fake_github: FakeGitHub) -> AsyncIterator[Receiver]:
    kept = Receiver()

    async def app(scope: AsgiMessage, receive: Receive, send: Send) -> None:
        kept.requests.append((read_headers(scope), await read_body(receive)))
        kept.coming.put_nowait(kept.requests[-1][1])
        await respond(send, kept.status, {}, b"")

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = LoopbackUvicorn(uvicorn.Config(app, log_config=None, lifespan="off"))
    running = asyncio.create_task(server.serve(sockets=[listening]))
    fake_github.add_webhook(f"http://127.0.0.1:{listening.getsockname()[1]}/webhook", secret="s3cret")
    yield kept
    server.should_exit = True
    await running


async def test_a_webhook_is_signed_and_has_githubs_payload(
    fake_github: FakeGitHub, repo: Repository, receiver: Receiver
) -> None:
    app = fake_github.create_app()
    installation = fake_github.install_app(app, repo)
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    before = issue.updated
    delivery = await fake_github.add_label(issue, "fix-me", by="maintainer")
    assert delivery.status == 202

    [(headers, body)] = receiver.requests
    assert headers["x-github-event"] == "issues"
    assert headers["x-github-delivery"] == delivery.guid
    assert headers["x-hub-signature-256"] == "sha256=" + hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    payload = json.loads(body)
    assert (payload["action"], payload["label"]["name"], payload["issue"]["number"]) == (
        "labeled",
        "fix-me",
        issue.number,
    )
    assert payload["sender"]["id"] == fake_github.user("maintainer").id
    assert payload["repository"]["full_name"] == "acme/sample"
    assert payload["installation"]["id"] == installation.id
    assert payload["issue"]["updated_at"] > before


async def test_a_redelivery_has_the_same_bytes_and_guid(
    fake_github: FakeGitHub, repo: Repository, receiver: Receiver
) -> None:
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    receiver.status = 500
    first = await fake_github.add_comment(issue, "@agent please", by="maintainer")
    receiver.status = 202
    second = await fake_github.redeliver(first)
    assert (first.status, second.status, second.redelivery) == (500, 202, True)
    (first_headers, first_body), (second_headers, second_body) = receiver.requests
    assert first_headers["x-github-delivery"] == second_headers["x-github-delivery"] == first.guid
    assert first_body == second_body
    other = await fake_github.add_comment(issue, "@agent please", by="maintainer")
    assert other.guid != first.guid


async def test_actions_over_rest_send_deliveries_too(
    fake_github: FakeGitHub, repo: Repository, receiver: Receiver, client: Client
) -> None:
    """A bot hears its own comments: that is what its loop guard is for."""
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    async with client(fake_github, fake_github.create_token("maintainer")) as api:
        made = await api.post(f"/repos/acme/sample/issues/{issue.number}/comments", json={"body": "hello"})
        await api.patch(
            f"/repos/acme/sample/issues/comments/{made.json()['id']}", json={"body": "hello again"}
        )
        await api.post(f"/repos/acme/sample/issues/{issue.number}/labels", json={"labels": ["needs work"]})
        await api.delete(f"/repos/acme/sample/issues/{issue.number}/labels/needs%20work")
    async with asyncio.timeout(5):
        payloads = [json.loads(await receiver.coming.get()) for _ in range(4)]
    assert sorted((one["action"], one["sender"]["login"]) for one in payloads) == [
        ("created", "maintainer"),
        ("edited", "maintainer"),
        ("labeled", "maintainer"),
        ("unlabeled", "maintainer"),
    ]


async def test_a_delivery_to_a_stopped_receiver_has_no_status(
    fake_github: FakeGitHub, repo: Repository
) -> None:
    fake_github.add_webhook("http://127.0.0.1:1/webhook", secret="s3cret")
    issue = fake_github.create_issue(repo, title="T", body="B", by="stranger")
    assert (await fake_github.add_label(issue, "fix-me", by="maintainer")).status is None
