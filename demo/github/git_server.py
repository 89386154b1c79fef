"""The git server of the fake: clone and push over smart HTTP, through `git http-backend`."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Mapping

from patchwright.demo.asgi import AsgiMessage, Receive, Send, read_headers, respond
from patchwright.demo.github.auth import ApiError, authenticate, require_access, require_visible
from patchwright.demo.github.bare_repository import GIT, GIT_ENVIRONMENT, WORKFLOWS_VARIABLE
from patchwright.demo.github.commits import can_change_workflows
from patchwright.demo.github.operations import PUSH_ACCESS
from patchwright.demo.github.rest_api import WriteRequest, actor_login
from patchwright.demo.github.state import GitHubState, Repository, Token

REPOSITORY_PATH = re.compile(r"/([^/]+)/([^/]+?)(?:\.git)?/(info/refs|git-upload-pack|git-receive-pack)")
CHUNK_SIZE = 65_536  # bytes read from git at a time


class GitServer:
    """Accepts basic authentication with `x-access-token:TOKEN`, as github.com does. Public repositories can
    be read without it.
    """

    def __init__(self, state: GitHubState, writes: list[WriteRequest]) -> None:
        self._state = state
        self._writes = writes

    async def __call__(self, scope: AsgiMessage, receive: Receive, send: Send) -> None:
        matched = REPOSITORY_PATH.fullmatch(scope["path"])
        if matched is None:
            await respond(send, 404, {}, b"Not Found")
            return
        owner, name, service = matched.groups()
        query = scope["query_string"].decode()
        pushing = service == "git-receive-pack" or query == "service=git-receive-pack"
        actor = None
        try:
            actor = authenticate(read_headers(scope).get("authorization"), self._state)
            repo = require_visible(actor, self._state.find_repository(owner, name))
            if pushing:
                require_access(actor, _find_push_repository(repo), PUSH_ACCESS)
        except ApiError as refusal:
            # git sends its credentials only after a 401, so requests without credentials never get a 404.
            status = 401 if actor is None else refusal.status
            challenge = {"www-authenticate": 'Basic realm="GitHub"'} if status == 401 else {}
            await respond(send, status, challenge, refusal.message.encode())
            return
        finally:
            if service == "git-receive-pack":
                self._writes.append(WriteRequest("POST", scope["path"], actor_login(actor)))
        environment = _cgi_environment(repo, service, actor_login(actor), scope)
        if isinstance(actor, Token) and not can_change_workflows(actor):
            environment[WORKFLOWS_VARIABLE] = "no"
        await _run_backend(environment, receive, send)


def _find_push_repository(repo: Repository) -> Repository:
    """Returns the repository whose writers may push to `repo`. Normally, this is `repo` itself.

    If `repo` is a fork with an open pull request that allows edits by maintainers, it is the parent repository.
    """
    pulls = repo.parent.pulls if repo.parent else ()
    opened = any(one.state == "open" and one.head_repo is repo and one.maintainer_can_modify for one in pulls)
    return repo.parent if repo.parent and opened else repo


def _cgi_environment(repo: Repository, service: str, user: str, scope: AsgiMessage) -> dict[str, str]:
    """Returns the CGI environment variables of the request."""
    headers = read_headers(scope)
    environment = {
        **GIT_ENVIRONMENT,
        "GIT_PROJECT_ROOT": str(repo.bare.path),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": f"/{service}",
        "QUERY_STRING": scope["query_string"].decode(),
        "REQUEST_METHOD": scope["method"],
        "REMOTE_USER": user,
        "CONTENT_TYPE": headers.get("content-type", ""),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),  # git compresses long requests
        "GIT_PROTOCOL": headers.get("git-protocol", ""),
    }
    if "content-length" in headers:  # a long push is sent in chunks without a length
        environment["CONTENT_LENGTH"] = headers["content-length"]
    return environment


async def _run_backend(environment: Mapping[str, str], receive: Receive, send: Send) -> None:
    process = await asyncio.create_subprocess_exec(
        GIT, "http-backend", env=environment,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    feeding = asyncio.create_task(_copy_body(receive, process.stdin))
    try:
        status, lines = await _read_headers(process.stdout)
        await send({"type": "http.response.start", "status": status, "headers": lines})
        while chunk := await process.stdout.read(CHUNK_SIZE):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        feeding.cancel()
        # process.kill() could reap a process that has just ended, and asyncio's own watcher would then miss
        # its exit.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also kills the programs that git started
        await process.stdout.read()  # the rest of the output is discarded; otherwise its pipe would stay open
        await process.wait()


async def _copy_body(receive: Receive, stdin: asyncio.StreamWriter) -> None:
    """Copies the request's body to git. Git may stop reading before the end of the body."""
    with contextlib.suppress(ConnectionError):
        while True:
            message = await receive()
            stdin.write(message.get("body", b""))
            await stdin.drain()
            if not message.get("more_body", False):
                break
    stdin.close()


async def _read_headers(stdout: asyncio.StreamReader) -> tuple[int, list[tuple[bytes, bytes]]]:
    status, lines = 200, list[tuple[bytes, bytes]]()
    while line := (await stdout.readline()).strip():
        name, _, value = line.partition(b":")
        if name.lower() == b"status":
            status = int(value.split()[0])
        else:
            lines.append((name.lower(), value.strip()))
    return status, lines
