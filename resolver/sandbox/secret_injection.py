"""Injects a repository's own secrets into the commands that name them, and masks the secrets in the output.

The command itself can leak a secret to hosts that the sandbox can reach; see docs/security.md.
"""

import re
from collections.abc import Mapping

from patchwright.resolver.sandbox.secret_sources import SecretSource, SecretUnavailable
from patchwright.resolver.secrets import Secrets
from patchwright.runtime.actions import RunShell, RunShellWithSecrets, SandboxAction
from patchwright.runtime.observations import ActionFailure, Observation
from patchwright.runtime.sandbox import Sandbox, WrapperSandbox

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class SecretInjectingSandbox(WrapperSandbox):
    """A sandbox that passes secrets to shell commands as environment variables. A command gets only the
    secrets that it names.

    Before a command runs, the values of its secrets are added to `secrets`, so that they are masked in the
    output.
    """

    def __init__(self, sandbox: Sandbox, sources: Mapping[str, SecretSource], secrets: Secrets) -> None:
        super().__init__(sandbox)
        self._sources = dict(sources)
        self._secrets = secrets

    async def act(self, action: SandboxAction) -> Observation:
        if not isinstance(action, RunShell):
            return await self._sandbox.act(action)
        names = [name for name in dict.fromkeys(_NAME.findall(action.command)) if name in self._sources]
        if not names:
            return await self._sandbox.act(action)
        values: dict[str, str] = {}
        for name in names:
            try:
                values[name] = await self._sources[name].get_value()
            except SecretUnavailable as reason:
                return ActionFailure(
                    reason="refused", message=f"the secret {name} is not available: {reason}"
                )
            self._secrets.add(values[name])
        return await self._sandbox.act(RunShellWithSecrets(shell=action, secret_env=values))
