"""Signed webhook deliveries, as GitHub sends them; each can be sent again under its own GUID."""

import asyncio
import hashlib
import hmac
import json
import uuid
from collections.abc import Coroutine
from typing import Any

import httpx

from demo.world.call import News
from demo.world.contract import Contract
from demo.world.shapes import Json, Shapes, node_id
from demo.world.state import Pull, Repository, State
from demo.world.told import Delivery, Hook

PATIENCE = 10  # seconds; GitHub waits no longer for an answer


class Hooks:
    """An App's hook hears of every repository, a repository's own of that one."""

    def __init__(self, state: State, shapes: Shapes, contract: Contract) -> None:
        self._state = state
        self._shapes = shapes
        self._contract = contract
        self._under_way: set[asyncio.Task[object]] = set()
        self._client = httpx.AsyncClient(timeout=PATIENCE, trust_env=False)

    def add(self, url: str, secret: str, repo: Repository | None = None) -> Hook:
        hook = Hook(self._state.next_id(), url, secret, repo)
        self._state.hooks.append(hook)
        return hook

    def ping(self, hook: Hook) -> None:
        """Tells it that it is one, when the loop gets to it."""
        body = json.dumps({"zen": "Keep it logically awesome.", "hook_id": hook.id}).encode()
        self._later(self.post(hook, str(uuid.uuid4()), "ping", "", body))

    def soon(self, news: News | Delivery) -> None:
        """Sends it when the loop gets to it, as GitHub does after a request."""
        self._later(self.again(news) if isinstance(news, Delivery) else self._send(news))

    def _later(self, work: Coroutine[Any, Any, object]) -> None:
        task: asyncio.Task[object] = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def sent(self) -> None:
        """Returns when nothing is on its way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def tell(self, news: News) -> Delivery:
        """Sends it now; what came of it at the first hook. Raises LookupError if there is no hook."""
        if not self._state.hooks:
            raise LookupError("nobody listens: add a hook to the world first")
        return (await self._send(news))[0]

    async def again(self, delivery: Delivery) -> Delivery:
        """The same bytes under the same GUID, to the same hook."""
        return await self.post(
            delivery.hook, delivery.guid, delivery.event, delivery.action, delivery.body, redelivery=True
        )

    async def close(self) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        await self._client.aclose()

    async def _send(self, news: News) -> tuple[Delivery, ...]:
        guid, payloads = str(uuid.uuid4()), {whole: self._payload(news, whole) for whole in (False, True)}
        return tuple(
            [
                await self.post(hook, guid, news.event, news.action, payloads[hook.repo is None])
                for hook in self._state.hooks
                if hook.repo in (None, news.thread.repo)
            ]
        )

    async def post(
        self, hook: Hook, guid: str, event: str, action: str, body: bytes, *, redelivery: bool = False
    ) -> Delivery:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/stand-in",
            "X-GitHub-Hook-ID": str(hook.id),
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": guid,
            "X-Hub-Signature": "sha1=" + hmac.new(hook.secret.encode(), body, hashlib.sha1).hexdigest(),
            "X-Hub-Signature-256": "sha256="
            + hmac.new(hook.secret.encode(), body, hashlib.sha256).hexdigest(),
        }
        try:
            status: int | None = (
                await self._client.post(hook.url, content=body, headers=headers)
            ).status_code
        except httpx.TransportError:
            status = None
        at = self._state.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        delivery = Delivery(
            hook, guid, event, action, body, status, redelivery, id=self._state.next_id(), at=at
        )
        self._state.deliveries.append(delivery)
        return delivery

    def _payload(self, news: News, installed: bool) -> bytes:
        """`installed`: as an App hears it."""
        repo = news.thread.repo
        payload: Json = {
            "action": news.action,
            **self._thread(news),
            **news.details,
            "repository": self._shapes.repository(repo),
            "sender": self._shapes.user(news.sender),
        }
        for installation in self._state.installations:
            if installed and repo in installation.repositories:
                payload["installation"] = {
                    "id": installation.id,
                    "node_id": node_id("Installation", installation.id),
                }
        self._contract.check_hook(news.event, news.action, payload)
        return json.dumps(payload).encode()

    def _thread(self, news: News) -> Json:
        if news.event == "pull_request":
            assert isinstance(news.thread, Pull)
            return {"number": news.thread.number, "pull_request": self._shapes.pull(news.thread)}
        if news.event in ("check_run", "check_suite", "workflow_run", "status"):
            return {}
        if news.event in ("pull_request_review", "pull_request_review_comment"):
            assert isinstance(news.thread, Pull)
            return {"pull_request": self._shapes.pull_summary(news.thread)}
        return {"issue": self._shapes.issue(news.thread)}
