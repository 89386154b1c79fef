"""What the contract suites ask of a sandbox, in few words."""

from runtime.actions import RunShell, SandboxAction
from runtime.observations import Failed, Ran
from runtime.remote import RemoteSandbox
from runtime.sandbox import Sandbox
from runtime.watched import Watched


async def shell(sandbox: Sandbox, command: str, timeout: int = 30) -> Ran:
    ran = await sandbox.act(RunShell(command=command, timeout=timeout))
    assert isinstance(ran, Ran), ran
    return ran


async def printed(sandbox: Sandbox, command: str) -> str:
    return (await shell(sandbox, command)).output


async def taken_over(remote: RemoteSandbox | Watched) -> RemoteSandbox:
    """The same machine for a process that knows of it only what it says of itself."""
    remote.hang_up()
    door = (remote._machine if isinstance(remote, Watched) else remote)._door
    await door.line(timeout=30)
    return RemoteSandbox(door, remote.root, remote.scratch, left=door.hello)


async def failed(sandbox: Sandbox, action: SandboxAction) -> Failed:
    seen = await sandbox.act(action)
    assert isinstance(seen, Failed), seen
    return seen
