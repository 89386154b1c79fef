"""An action that fails because of a bug: the agent reads the error, and the sandbox is still usable."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from patchwright.runtime.actions import RunShell, ViewFile
from patchwright.runtime.execution.action_server import ActionServer
from patchwright.runtime.execution.editor import Editor
from patchwright.runtime.execution.executor import Executor
from patchwright.runtime.observations import ActionFailure, ShellResult
from patchwright.runtime.remote_sandbox import RemoteSandbox, SocketTransport
from patchwright.runtime.sandbox import Sandbox
from patchwright.runtime.wire_protocol import KEY_FILE, SOCKET_NAME, ActionResponse, read_frame


@asynccontextmanager
async def open_sandbox(directory: Path, *, remote: bool) -> AsyncIterator[Executor | Sandbox]:
    """Opens an executor. If `remote`, its actions and results are sent through the action server."""
    root, scratch, socket = directory / "tree", directory / "tmp", directory / "d"
    for path in (root, scratch, socket):
        path.mkdir()
    executor = Executor(root, scratch, {"PATH": os.environ["PATH"]})
    try:
        if not remote:
            yield executor
            return
        async with SocketTransport.listen(socket) as transport:
            key = (socket / KEY_FILE).read_text()  # a few bytes
            serving = asyncio.create_task(ActionServer(executor).dial(str(socket / SOCKET_NAME), key))
            await transport.get_connection(timeout=30)
            yield RemoteSandbox(transport, str(root), str(scratch))
            serving.cancel()
    finally:
        await executor.close()


@pytest.mark.parametrize("remote", [False, True], ids=["local", "remote"])
async def test_an_action_with_a_bug_fails_alone_and_names_the_error(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, remote: bool
) -> None:
    def view(_editor: Editor, _action: ViewFile) -> None:
        raise KeyError("encoding")

    monkeypatch.setattr(Editor, "view", view)
    async with asyncio.timeout(30), open_sandbox(short_tmp, remote=remote) as sandbox:
        failure = await sandbox.act(ViewFile(path="calc.py"))
        after = await sandbox.act(RunShell(command="echo usable"))
    message = "view_file failed because of an error in the sandbox: KeyError('encoding')"
    assert failure == ActionFailure(reason="io", message=message)
    assert isinstance(after, ShellResult) and after.exit_code == 0
    logged = [record for record in caplog.records if record.message == "action failed"]
    assert [(record.levelno, record.__dict__["action"]) for record in logged] == [
        (logging.ERROR, "view_file")
    ]


async def test_a_request_that_is_no_action_is_answered_with_the_reason(short_tmp: Path) -> None:
    async with asyncio.timeout(30), open_sandbox(short_tmp, remote=True) as sandbox:
        assert isinstance(sandbox, RemoteSandbox)
        reader, writer = await sandbox._transport.get_connection(timeout=30)
        writer.write(len(body := b'{"id": 1, "action": {"kind": "fly"}}').to_bytes(4, "big") + body)
        reply = ActionResponse.model_validate_json(await read_frame(reader, 1 << 20))
    assert reply.id == 0 and isinstance(reply.observation, ActionFailure)
    assert reply.observation.reason == "malformed" and "'fly'" in reply.observation.message


def test_what_executes_a_tool_is_built_at_its_first_call(tmp_path: Path) -> None:
    program = """
import asyncio, pathlib, sys
from patchwright.runtime.actions import CreateFile, SearchCode
from patchwright.runtime.execution.executor import Executor

def loaded():
    names = ("execution.editor", "search.code_search", "kernel.kernel_manager", "browser.playwright_browser")
    return [name for name in names if f"patchwright.runtime.{name}" in sys.modules]

async def main():
    root = pathlib.Path(sys.argv[1])
    executor = Executor(root, root / "scratch", {})
    print(loaded())
    await executor.act(CreateFile(path="a.py", content="x = 1"))
    print(loaded(), (root / "a.py").read_text())
    await executor.act(SearchCode(query="x"))
    print(loaded())
    await executor.close()

(pathlib.Path(sys.argv[1]) / "scratch").mkdir()
asyncio.run(main())
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout.splitlines() == [
        "[]",
        "['execution.editor'] x = 1",
        "['execution.editor', 'search.code_search']",
    ]
