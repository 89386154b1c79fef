"""The connection to a remote sandbox: what holds when it drops."""

import asyncio

import pytest

from patchwright.runtime.actions import (
    CreateFile,
    ReadBytes,
)
from patchwright.runtime.observations import EditResult, FileContent
from patchwright.runtime.remote_sandbox import RemoteSandbox
from patchwright.runtime.sandbox import call_context
from tests.contracts.sandbox_actions import printed, shell, take_over

# --- the shell --------------------------------------------------------------------------------------------------


# --- the wire ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_dropped_connection_repeats_no_action(remote: RemoteSandbox) -> None:
    task = asyncio.create_task(shell(remote, "echo once >> ran; sleep 1; wc -l < ran"))
    await asyncio.sleep(0.5)
    remote.disconnect()
    assert (await task).output == "1\n"
    assert await printed(remote, "wc -l < ran") == "1\n"


async def test_a_connection_that_drops_between_actions_does_no_harm(remote: RemoteSandbox) -> None:
    await shell(remote, "X=kept")
    for _ in range(3):
        remote.disconnect()
        assert await printed(remote, "echo $X") == "kept\n"


@pytest.mark.slow
async def test_a_call_in_flight_is_finished_for_the_adopting_process(remote: RemoteSandbox) -> None:
    command = "echo once >> ran; sleep 1; wc -l < ran"
    with call_context("call"):
        task = asyncio.create_task(shell(remote, command))
        await asyncio.sleep(0.5)
        task.cancel()
        heir = await take_over(remote)
        assert (await shell(heir, command)).output == "1\n"
    assert await printed(heir, command) == "2\n"


async def test_the_result_of_the_last_call_is_stored(remote: RemoteSandbox) -> None:
    command = "echo once >> ran; wc -l < ran"
    with call_context("call"):
        answered = await shell(remote, command)
        # part of the call, but not a tool call action itself
        content = await remote.act(ReadBytes(path="ran"))
        assert isinstance(content, FileContent)
    for _ in range(3):
        await shell(remote, "true")
    heir = await take_over(remote)
    await shell(heir, "true")
    with call_context("call"):
        assert await shell(heir, command) == answered
        assert await printed(heir, command) == "2\n"  # as when a cell continues after a host request
    with call_context("next call"):  # unknown to the server
        assert await printed(heir, command) == "3\n"


async def test_a_work_tree_with_its_own_runtime_does_not_shadow_ours(remote: RemoteSandbox) -> None:
    await shell(
        remote, "mkdir runtime && echo 'raise SystemExit(1)' | tee runtime/__init__.py asyncio.py json.py"
    )
    remote.disconnect()
    assert isinstance(await remote.act(CreateFile(path="a.py", content="x = 1\n")), EditResult)
