"""What all routes of the HTTP API share: request ids, scopes, limits, and errors."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from patchwright.bot.api import api_middleware
from patchwright.bot.errors import QueueDown
from patchwright.bot.redis.api_keys import ApiKey
from tests.bot.api.clients import AUTHORIZED, api_client, api_receiver
from tests.bot.inline_queue import InlineQueue

REQUEST = {"repository": "acme/sample", "number": 7, "id": "mine"}
ORIGIN = {"origin": "https://evil.example", "access-control-request-method": "POST"}


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [("trace-1.a_B", True), ("", False), ("a b", False), ("x" * 65, False), ("a\u00e9", False)],
)
async def test_every_answer_has_a_request_id(sent: str, is_kept: bool) -> None:
    headers = {"x-request-id": sent.encode()}
    async with api_client(InlineQueue()) as http:
        answers = [
            await http.get("/openapi.json", headers=headers),
            await http.get("/jobs/none", headers=headers),
            await http.get("/jobs", headers=headers),
            await http.post("/jobs", json={}, headers=headers),
            await http.get("/jobs/none", headers=headers | {"authorization": "Bearer wrong"}),
        ]
    assert [one.status_code for one in answers] == [200, 404, 405, 422, 401]
    ids = [one.headers["x-request-id"] for one in answers]
    assert set(ids) == {sent} if is_kept else len(set(ids)) == 5 and all(len(one) == 32 for one in ids)


async def test_a_key_permits_only_what_its_scopes_name() -> None:
    async with api_client(InlineQueue()) as http:
        reader, writer = ({"authorization": f"Bearer jobs:{scope}"} for scope in ("read", "write"))
        denied = await http.post("/jobs", json=REQUEST, headers=reader)
        assert (denied.status_code, denied.json()["detail"]) == (
            403,
            "The API key jobs-read does not have the scope jobs:write.",
        )
        assert (await http.post("/jobs", json=REQUEST, headers=writer)).status_code == 202
        assert (await http.get("/jobs/mine", headers=writer)).status_code == 403
        assert (await http.head("/jobs/mine", headers=reader)).status_code == 200
        assert (await http.get("/jobs/mine", headers=reader)).json()["state"] == "queued"
        assert (await http.delete("/jobs/mine", headers=reader)).status_code == 403
        assert (await http.delete("/jobs/mine", headers=writer)).status_code == 202


async def test_other_sites_may_not_use_the_api_from_a_browser() -> None:
    async with api_client(InlineQueue()) as http:
        answers = [
            await http.options("/jobs", headers=ORIGIN),
            await http.post("/jobs", json=REQUEST, headers=ORIGIN),
        ]
    assert [one.status_code for one in answers] == [405, 202]
    assert [name for one in answers for name in one.headers if name.startswith("access-control")] == []
    assert {one.headers["cache-control"] for one in answers} == {"no-store"}


async def test_keys_cannot_be_checked_without_redis_but_the_operator_token_can() -> None:
    class Unavailable:
        async def find(self, text: str) -> ApiKey | None:
            raise QueueDown("Redis does not respond: ConnectionError")

    async with api_client(InlineQueue(), keys=Unavailable()) as http:
        answer = await http.get("/jobs/none", headers={"authorization": "Bearer pw_x_y"})
        assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
        assert (await http.get("/jobs/none")).status_code == 404


async def test_a_bug_is_reported_without_its_details() -> None:
    class Broken(InlineQueue):
        async def get_record(self, job: Any) -> Any:
            raise ZeroDivisionError("secret")

    async with api_client(Broken()) as http:
        answer = await http.get("/jobs/mine", headers={"x-request-id": "mine"})
    assert (answer.status_code, answer.headers["x-request-id"]) == (500, "mine")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text


async def send_body(headers: dict[str, str], messages: list[dict[str, Any]]) -> tuple[int, int]:
    """Sends a body in parts. Returns the status, and how many parts were received."""
    left, sent = list(messages), list[Any]()

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": "/jobs", "method": "POST", "headers": raw, "query_string": b""}
    await api_receiver(InlineQueue())(scope, receive, send)
    return sent[0]["status"], len(messages) - len(left)


async def test_a_body_is_not_read_without_a_key_and_only_up_to_its_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api_middleware, "BODY_TIMEOUT_SECONDS", 0.05)
    part = {"type": "http.request", "body": b" " * 50_000, "more_body": True}
    end = {"type": "http.request", "body": json.dumps(REQUEST).encode()}
    accepted = AUTHORIZED | {"content-type": "application/json"}
    assert await send_body({}, [part] * 9) == (401, 0)
    assert await send_body(accepted, [part] * 9) == (413, 3)
    assert await send_body(accepted, [part]) == (408, 1)
    assert await send_body(accepted, [part, end]) == (202, 2)


async def test_the_application_is_not_loaded_for_paths_outside_the_api() -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(api_receiver(InlineQueue())),  # type: ignore[arg-type]
        base_url="http://test",
    ) as http:
        answer = await http.get("/anything")
    assert (answer.status_code, answer.text) == (404, "Not found.\n")
