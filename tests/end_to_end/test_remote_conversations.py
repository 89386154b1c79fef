"""Conversations on a server: late watchers, pauses, keys, and servers that are killed."""

import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from jsonschema import Draft202012Validator
from pydantic import SecretStr
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from patchwright import BaseWorkspace, Conversation, DockerWorkspace, RemoteWorkspace, default_agent
from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.events import AgentStopped, Entry
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import CreateFile, RunShell
from patchwright.sdk.server_client import ServerError
from tests.contracts.workspace_servers import (
    TOKEN,
    run_redis,
    serve_workspaces,
    start_server,
    wait_until_ready,
)
from tests.sdk.model_endpoint import serve_model

pytestmark = [pytest.mark.slow, pytest.mark.docker]

WRITE = RecordedTurn("", CreateFile(path="one.txt", content="first\n"))
LOOK = RecordedTurn("", RunShell(command="cat one.txt"))
DONE = RecordedTurn("", Finish(cause="A file was missing.", change="It is there.", testing="cat"))
AUTHORIZED = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with serve_workspaces(tmp_path / "server") as (host, _):
        yield host


def test_a_watcher_who_comes_late_gets_past_and_then_new_events_in_order_and_once(server: str) -> None:
    received: list[int] = []

    async def watch(id: str, last: int) -> None:
        url = f"{server.replace('http', 'ws')}/conversations/{id}/events"
        async with connect(url, additional_headers=AUTHORIZED) as socket:
            while not received or received[-1] < last:
                received.append(json.loads(await socket.recv())["seq"])

    with (
        serve_model(WRITE, LOOK, DONE, RecordedTurn("Yes.")) as (llm, _),
        RemoteWorkspace(server, TOKEN) as workspace,
    ):
        conversation = Conversation(default_agent(llm), workspace)
        conversation.send_message("Write one.txt.")
        assert conversation.run().status == "finished"
        past = len(conversation.events)
        conversation.send_message("Is it there?")
        watching = threading.Thread(target=lambda: asyncio.run(watch(conversation.id, past + 2)))
        watching.start()
        assert conversation.run().answer == "Yes."
        watching.join(30)
        page = httpx.get(f"{server}/conversations/{conversation.id}/events", headers=AUTHORIZED).json()
    assert received == list(range(past + 3))
    description = httpx.get(f"{server}/openapi.json").json()
    schema = {"$ref": "#/components/schemas/EventPage", "components": description["components"]}
    assert list(Draft202012Validator(schema).iter_errors(page)) == []
    assert list(Draft202012Validator(schema).iter_errors({**page, "entries": [{"seq": 0}]}))


def test_a_pause_keeps_the_work_and_run_continues_it(server: str) -> None:
    def pause(entry: Entry) -> None:
        if entry.event.kind == "tool_result":
            httpx.post(f"{server}/conversations/paused/pause", headers=AUTHORIZED)

    with (
        serve_model(WRITE, LOOK, DONE, delay=0.5) as (llm, endpoint),
        RemoteWorkspace(server, TOKEN) as workspace,
    ):
        conversation = Conversation(default_agent(llm), workspace, id="paused", callbacks=[pause])
        conversation.send_message("Write one.txt.")
        state = conversation.run()
        assert (state.status, conversation.events[-1].event.kind) == ("paused", "paused")
        while conversation.run().status == "paused":
            pass
        assert conversation.state.answer.startswith("A file was missing.")
        assert workspace.file_download("one.txt") == b"first\n"
    assert len(endpoint.requests) == 3


def test_a_conversation_continues_on_another_server_after_its_server_was_killed(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    key_file = tmp_path / "shared.key"
    key_file.write_text("a-key-that-both-servers-share-0123456789")
    key_file.chmod(0o600)

    def kill(turn: int, request: object) -> None:
        if turn == 1 and first.poll() is None:
            first.send_signal(signal.SIGKILL)

    with (
        run_redis(tmp_path / "redis") as redis_url,
        serve_model(WRITE, LOOK, DONE, delay=0.3, on_request=kill) as (llm, endpoint),
    ):
        shared = {"REDIS_URL": redis_url, "PATCHWRIGHT_CREDENTIALS_KEY": f"file:{key_file}"}
        first, host = start_server(tmp_path / "one", **shared)
        wait_until_ready(host)
        workspace = RemoteWorkspace(host, TOKEN).__enter__()
        conversation = Conversation(default_agent(llm), workspace, id="killed")
        conversation.send_message("Write one.txt.")
        with pytest.raises(ServerError, match="does not answer"):
            conversation.run()
        assert first.wait(10) == -signal.SIGKILL

        second, host = start_server(tmp_path / "two", **shared)
        try:
            wait_until_ready(host)
            with RemoteWorkspace(host, TOKEN, id=workspace.id) as again:
                conversation = Conversation(default_agent(llm), again, id="killed")
                kinds = [entry.event.kind for entry in conversation.events]
                assert "model_reply" in kinds
                assert conversation.run().status == "finished"
                assert again.file_download("one.txt") == b"first\n"
        finally:
            second.terminate()
            second.wait(30)
    seqs = [entry.seq for entry in conversation.events]
    assert seqs == list(range(len(seqs)))
    assert len(endpoint.requests) == 4, "only the request that the kill cut off is repeated"
    results = [request["messages"][-1].get("content") for request in endpoint.requests]
    assert any("first" in str(text) for text in results)


def test_every_request_needs_a_key_with_the_right_scope(server: str) -> None:
    for headers in ({}, {"authorization": "Bearer wrong"}):
        for path in ("/conversations", "/conversations/x", "/workspaces/x/diff"):
            assert httpx.get(server + path, headers=headers).status_code == 401

        async def follow(headers: dict[str, str] = headers) -> None:
            url = f"{server.replace('http', 'ws')}/conversations/x/events"
            async with connect(url, additional_headers=headers):
                pass

        with pytest.raises(InvalidStatus) as caught:
            asyncio.run(follow())
        assert caught.value.response.status_code == 401
    with pytest.raises(ServerError, match="The API key is not valid"):
        RemoteWorkspace(server, "wrong").__enter__()


def test_mistakes_are_named_by_the_server(server: str) -> None:
    def post(path: str, body: object) -> tuple[int, str]:
        response = httpx.post(server + path, json=body, headers=AUTHORIZED)
        assert response.headers["content-type"] == "application/problem+json"
        return response.status_code, response.json()["detail"]

    assert httpx.get(f"{server}/conversations/x", headers=AUTHORIZED).status_code == 404
    agent = {"kind": "Agent", "llm": {"kind": "LLM", "model": "openai/x"}}
    assert post("/conversations", {"workspace": "w", "agent": agent}) == (404, "Workspace not found.")
    wrong = {"workspace": "w", "agent": agent | {"tools": ["run_shel"]}}
    assert post("/conversations", wrong)[0] == 422
    assert "unknown tool 'run_shel'" in post("/conversations", wrong)[1]
    for part, sentence in (
        ({"llm": agent["llm"]}, "agent: the field `kind` is missing."),
        ({"kind": "Agent", "llm": {"kind": "LLM"}}, "agent.llm.model: Field required."),
    ):
        assert post("/conversations", {"workspace": "w", "agent": part}) == (422, sentence)
    with RemoteWorkspace(server, TOKEN) as workspace:
        body = {"id": "c", "workspace": workspace.id, "agent": agent}
        created = httpx.post(f"{server}/conversations", json=body, headers=AUTHORIZED)
        assert (created.status_code, created.json()["id"]) == (201, "c")
        assert httpx.post(f"{server}/conversations", json=body, headers=AUTHORIZED).status_code == 200
        assert post("/conversations/c/run", None) == (409, "There is no message yet. Send one first.")
        other = httpx.post(f"{server}/workspaces", json={}, headers=AUTHORIZED).json()["id"]
        assert post("/conversations", body | {"workspace": other})[0] == 409
        httpx.post(f"{server}/conversations/c/messages", json={"text": "Hello."}, headers=AUTHORIZED)
        state = httpx.get(f"{server}/conversations/c", headers=AUTHORIZED).json()
        assert (state["detail"], state["workspace"]) == ("Call run.", workspace.id)
        assert (state["id"], state["status"], state["steps"], state["cost"]) == ("c", "idle", 0, "0")
        listed = httpx.get(f"{server}/conversations", headers=AUTHORIZED).json()["conversations"]
        assert [(one["id"], one["status"]) for one in listed] == [("c", "idle")]
        deleted = httpx.delete(f"{server}/conversations/c", headers=AUTHORIZED)
        assert (deleted.status_code, deleted.headers.get("content-type")) == (204, None)
        assert httpx.get(f"{server}/conversations/c", headers=AUTHORIZED).status_code == 404


async def test_a_websocket_with_a_wrong_number_gets_the_problem(server: str) -> None:
    url = f"{server.replace('http', 'ws')}/conversations/c/events?after=-1"
    with pytest.raises(InvalidStatus) as caught:
        await connect(url, additional_headers=AUTHORIZED)
    assert caught.value.response.status_code == 422
    assert json.loads(caught.value.response.body)["detail"].startswith("after: ")


def test_a_workspace_says_which_network_it_has(server: str) -> None:
    response = httpx.post(f"{server}/workspaces", json={"network": "open"}, headers=AUTHORIZED)
    assert response.json()["network"] == "none"  # The setting of this server permits no more.


def test_a_wrong_key_is_corrected_by_creating_the_conversation_again(server: str) -> None:
    with serve_model(DONE) as (llm, _), RemoteWorkspace(server, TOKEN) as workspace:
        wrong = default_agent(llm.model_copy(update={"api_key": SecretStr("sk-wrong-key")}))
        conversation = Conversation(wrong, workspace, id="corrected")
        conversation.send_message("Look.")
        state = conversation.run()
        assert state.status == "error" and "rejects the API key" in state.detail
        stopped = conversation.events[-1].event
        assert isinstance(stopped, AgentStopped) and stopped.detail == state.detail
        assert Conversation(default_agent(llm), workspace, id="corrected").run().status == "finished"


def test_a_call_waits_on_the_server_until_the_client_decides_about_exactly_this_call(server: str) -> None:
    push = RecordedTurn("", RunShell(command="git push origin main; touch pushed"))
    with (
        serve_model(push, push, DONE) as (llm, _),
        RemoteWorkspace(server, TOKEN) as workspace,
    ):
        conversation = Conversation(default_agent(llm, confirm="risky"), workspace)
        conversation.send_message("Publish it.")
        state = conversation.run()
        assert (state.status, state.call) == (
            "waiting_for_confirmation",
            "run_shell: git push origin main; touch pushed",
        )
        url = f"{server}/conversations/{conversation.id}"
        other = httpx.post(f"{url}/approve", headers=AUTHORIZED, json={"code": "01234567"})
        assert (other.status_code, other.json()["detail"]) == (409, "This call does not wait for approval.")
        assert conversation.run().call_code == state.call_code, "nothing runs without a decision"
        conversation.reject("Not yet.")
        again = conversation.run()
        assert again.status == "waiting_for_confirmation" and again.call_code != state.call_code
        stale = httpx.post(f"{url}/approve", headers=AUTHORIZED, json={"code": state.call_code})
        assert stale.status_code == 409
        assert "pushed" not in workspace.execute_command("ls").stdout
        conversation.approve()
        assert conversation.run().status == "finished"
        assert "pushed" in workspace.execute_command("ls").stdout
        conversation.set_confirmation("always")
        assert conversation.agent.confirm == "always"


def test_a_remote_run_has_the_events_of_a_local_one(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop_what_differs(value: object) -> object:
        """Drops the durations and the random id of the message."""
        if isinstance(value, list):
            return [drop_what_differs(item) for item in value]
        if isinstance(value, dict):
            kept = value.keys() - {"seconds", "trigger_id"}
            return {key: drop_what_differs(value[key]) for key in kept}
        return value

    def run_in(workspace: BaseWorkspace) -> object:
        with (
            serve_model(WRITE, LOOK, DONE) as (llm, _),
            Conversation(default_agent(llm), workspace) as conversation,
        ):
            conversation.send_message("Write one.txt.")
            assert conversation.run().status == "finished"
            return drop_what_differs([entry.event.model_dump(mode="json") for entry in conversation.events])

    monkeypatch.setenv("PATCHWRIGHT_DATA", str(tmp_path / "data"))
    with DockerWorkspace(image="debian:bookworm-slim", features=(), network="none") as local:
        expected = run_in(local)
    with RemoteWorkspace(server, TOKEN) as remote:
        assert run_in(remote) == expected
