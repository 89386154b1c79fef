"""The git half of the stand-in: clone and push over smart HTTP by `git http-backend`."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Mapping

from demo.world.access import Refusal, allow, visible, whoever
from demo.world.api import Write, login
from demo.world.asgi import Message, Receive, Send, fields, respond
from demo.world.bare import GIT, GIT_ENVIRONMENT, WORKFLOWS_VARIABLE
from demo.world.commits import may_change_workflows
from demo.world.operations import PUSH
from demo.world.state import Repository, State, Token

PATH = re.compile(r"/([^/]+)/([^/]+?)(?:\.git)?/(info/refs|git-upload-pack|git-receive-pack)")
CHUNK = 65_536  # bytes read from git at a time


class GitServer:
    """Basic authentication `x-access-token:TOKEN`, as on github.com; a public repository is read without."""

    def __init__(self, state: State, writes: list[Write]) -> None:
        self._state = state
        self._writes = writes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        matched = PATH.fullmatch(scope["path"])
        if matched is None:
            await respond(send, 404, {}, b"Not Found")
            return
        owner, name, service = matched.groups()
        query = scope["query_string"].decode()
        pushing = service == "git-receive-pack" or query == "service=git-receive-pack"
        actor = None
        try:
            actor = whoever(fields(scope).get("authorization"), self._state)
            repo = visible(actor, self._state.find_repository(owner, name))
            if pushing:
                allow(actor, _whose(repo), PUSH)
        except Refusal as refusal:
            # Without credentials git is asked for some, also where a 404 would tell a person nothing.
            status = 401 if actor is None else refusal.status
            challenge = {"www-authenticate": 'Basic realm="GitHub"'} if status == 401 else {}
            await respond(send, status, challenge, refusal.message.encode())
            return
        finally:
            if service == "git-receive-pack":
                self._writes.append(Write("POST", scope["path"], login(actor)))
        environment = _environment(repo, service, login(actor), scope)
        if isinstance(actor, Token) and not may_change_workflows(actor):
            environment[WORKFLOWS_VARIABLE] = "no"
        await _serve(environment, receive, send)


def _whose(repo: Repository) -> Repository:
    """The repository whose writers may push here: a fork's owner lets those of its parent in."""
    pulls = repo.parent.pulls if repo.parent else ()
    opened = any(one.state == "open" and one.head_repo is repo and one.maintainer_can_modify for one in pulls)
    return repo.parent if repo.parent and opened else repo


def _environment(repo: Repository, service: str, user: str, scope: Message) -> dict[str, str]:
    """What CGI says about the request."""
    headers = fields(scope)
    environment = {
        **GIT_ENVIRONMENT,
        "GIT_PROJECT_ROOT": str(repo.bare.path),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": f"/{service}",
        "QUERY_STRING": scope["query_string"].decode(),
        "REQUEST_METHOD": scope["method"],
        "REMOTE_USER": user,
        "CONTENT_TYPE": headers.get("content-type", ""),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),  # git gzips a long request
        "GIT_PROTOCOL": headers.get("git-protocol", ""),
    }
    if "content-length" in headers:  # without it git reads to the end: a long push is chunked
        environment["CONTENT_LENGTH"] = headers["content-length"]
    return environment


async def _serve(environment: Mapping[str, str], receive: Receive, send: Send) -> None:
    process = await asyncio.create_subprocess_exec(
        GIT, "http-backend", env=environment,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    feeding = asyncio.create_task(_feed(receive, process.stdin))
    try:
        status, lines = await _head(process.stdout)
        await send({"type": "http.response.start", "status": status, "headers": lines})
        while chunk := await process.stdout.read(CHUNK):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        feeding.cancel()
        # Not process.kill(): it reaps a process that has just ended, and asyncio's own watcher then misses it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with the programs that it has started
        await process.stdout.read()  # what nobody wants: else its pipe would be left open
        await process.wait()


async def _feed(receive: Receive, stdin: asyncio.StreamWriter) -> None:
    """Passes the request's body on; git may have stopped reading before its end."""
    with contextlib.suppress(ConnectionError):
        while True:
            message = await receive()
            stdin.write(message.get("body", b""))
            await stdin.drain()
            if not message.get("more_body", False):
                break
    stdin.close()


async def _head(stdout: asyncio.StreamReader) -> tuple[int, list[tuple[bytes, bytes]]]:
    status, lines = 200, list[tuple[bytes, bytes]]()
    while line := (await stdout.readline()).strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"status":
            status = int(value.split()[0])
        else:
            lines.append((name.lower(), value.strip()))
    return status, lines
