"""Sends signed webhook deliveries as GitHub does. Each delivery can be sent again with the same GUID."""

import asyncio
import hashlib
import hmac
import json
import uuid
from collections.abc import Coroutine
from typing import Any

import httpx

from patchwright.demo.github.openapi_checker import OpenApiChecker
from patchwright.demo.github.request_context import WebhookEvent
from patchwright.demo.github.serializers import Json, Serializer, node_id
from patchwright.demo.github.state import FakePullRequest, GitHubState, Repository
from patchwright.demo.github.webhook_models import Delivery, RegisteredWebhook

RESPONSE_TIMEOUT = 10  # seconds; GitHub waits no longer than this for an answer


class WebhookSender:
    """Sends events to webhooks. The webhook of an App receives the events of all repositories. The webhook of a
    repository receives only the events of that repository.
    """

    def __init__(self, state: GitHubState, serializer: Serializer, checker: OpenApiChecker) -> None:
        self._state = state
        self._serializer = serializer
        self._checker = checker
        self._pending: set[asyncio.Task[object]] = set()
        self._client = httpx.AsyncClient(timeout=RESPONSE_TIMEOUT, trust_env=False)

    def add(self, url: str, secret: str, repo: Repository | None = None) -> RegisteredWebhook:
        hook = RegisteredWebhook(self._state.next_id(), url, secret, repo)
        self._state.hooks.append(hook)
        return hook

    def ping(self, hook: RegisteredWebhook) -> None:
        """Schedules the first event of a new webhook, which tells the receiver that the webhook exists."""
        body = json.dumps({"zen": "Keep it logically awesome.", "hook_id": hook.id}).encode()
        self._start_task(self.post(hook, str(uuid.uuid4()), "ping", "", body))

    def schedule(self, event: WebhookEvent | Delivery) -> None:
        """Schedules an event or a redelivery. It is sent after the current request."""
        self._start_task(
            self.redeliver(event) if isinstance(event, Delivery) else self._deliver_to_all(event)
        )

    def _start_task(self, work: Coroutine[Any, Any, object]) -> None:
        task: asyncio.Task[object] = asyncio.create_task(work)
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)

    async def wait_until_sent(self) -> None:
        """Waits until all scheduled deliveries have been sent."""
        while self._pending:
            await asyncio.wait(self._pending)

    async def deliver(self, event: WebhookEvent) -> Delivery:
        """Sends an event now to every webhook that receives it. Returns the delivery to the first webhook.

        Raises LookupError if there is no webhook.
        """
        if not self._state.hooks:
            raise LookupError("there is no webhook: call add_webhook first")
        return (await self._deliver_to_all(event))[0]

    async def redeliver(self, delivery: Delivery) -> Delivery:
        """Sends the same bytes with the same GUID to the same webhook again."""
        return await self.post(
            delivery.hook, delivery.guid, delivery.event, delivery.action, delivery.body, redelivery=True
        )

    async def close(self) -> None:
        for task in self._pending:
            task.cancel()
        await asyncio.gather(*self._pending, return_exceptions=True)
        await self._client.aclose()

    async def _deliver_to_all(self, event: WebhookEvent) -> tuple[Delivery, ...]:
        guid, payloads = str(uuid.uuid4()), {whole: self._payload(event, whole) for whole in (False, True)}
        return tuple(
            [
                await self.post(hook, guid, event.event, event.action, payloads[hook.repo is None])
                for hook in self._state.hooks
                if hook.repo in (None, event.thread.repo)
            ]
        )

    async def post(
        self,
        hook: RegisteredWebhook,
        guid: str,
        event: str,
        action: str,
        body: bytes,
        *,
        redelivery: bool = False,
    ) -> Delivery:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/fake",
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
            hook, guid, event, action, body, status, redelivery, id=self._state.next_id(), delivered_at=at
        )
        self._state.deliveries.append(delivery)
        return delivery

    def _payload(self, event: WebhookEvent, for_app: bool) -> bytes:
        """Returns an event as JSON. If `for_app` is true, the JSON contains the id of the App's installation."""
        repo = event.thread.repo
        payload: Json = {
            "action": event.action,
            **self._thread_payload(event),
            **event.details,
            "repository": self._serializer.repository(repo),
            "sender": self._serializer.user(event.sender),
        }
        for installation in self._state.installations:
            if for_app and repo in installation.repositories:
                payload["installation"] = {
                    "id": installation.id,
                    "node_id": node_id("Installation", installation.id),
                }
        self._checker.check_webhook(event.event, event.action, payload)
        return json.dumps(payload).encode()

    def _thread_payload(self, event: WebhookEvent) -> Json:
        if event.event == "pull_request":
            assert isinstance(event.thread, FakePullRequest)
            return {"number": event.thread.number, "pull_request": self._serializer.pull(event.thread)}
        if event.event in ("check_run", "check_suite", "workflow_run", "status"):
            return {}
        if event.event in ("pull_request_review", "pull_request_review_comment"):
            assert isinstance(event.thread, FakePullRequest)
            return {"pull_request": self._serializer.pull_summary(event.thread)}
        return {"issue": self._serializer.issue(event.thread)}
