"""What the contract suites ask of a sandbox, in few words."""

from runtime.actions import RunShell, SandboxAction
from runtime.observations import Failed, Ran
from runtime.sandbox import Sandbox


async def shell(sandbox: Sandbox, command: str, timeout: int = 30) -> Ran:
    ran = await sandbox.act(RunShell(command=command, timeout=timeout))
    assert isinstance(ran, Ran), ran
    return ran


async def printed(sandbox: Sandbox, command: str) -> str:
    return (await shell(sandbox, command)).output


async def failed(sandbox: Sandbox, action: SandboxAction) -> Failed:
    seen = await sandbox.act(action)
    assert isinstance(seen, Failed), seen
    return seen
