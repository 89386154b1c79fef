"""Helpers of the sandbox contract tests: run a command, read its output, expect a failure."""

from patchwright.runtime.actions import RunShell, SandboxAction
from patchwright.runtime.monitored_sandbox import MonitoredSandbox
from patchwright.runtime.observations import ActionFailure, ShellResult
from patchwright.runtime.remote_sandbox import RemoteSandbox
from patchwright.runtime.sandbox import Sandbox


async def shell(sandbox: Sandbox, command: str, timeout: int = 30) -> ShellResult:
    ran = await sandbox.act(RunShell(command=command, timeout=timeout))
    assert isinstance(ran, ShellResult), ran
    return ran


async def printed(sandbox: Sandbox, command: str) -> str:
    return (await shell(sandbox, command)).output


async def take_over(remote: RemoteSandbox | MonitoredSandbox) -> RemoteSandbox:
    """Take over a sandbox as another process does, which knows only the server's hello."""
    remote.disconnect()
    door = (remote._remote if isinstance(remote, MonitoredSandbox) else remote)._transport
    await door.get_connection(timeout=30)
    return RemoteSandbox(door, remote.root, remote.scratch, previous=door.hello)


async def failed(sandbox: Sandbox, action: SandboxAction) -> ActionFailure:
    result = await sandbox.act(action)
    assert isinstance(result, ActionFailure), result
    return result
