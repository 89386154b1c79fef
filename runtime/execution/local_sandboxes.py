"""The local sandbox. It has its own directory and a clean environment, but no isolation. Use it only for code
that you trust.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from patchwright.runtime import ownership, processes
from patchwright.runtime.egress_policy import ConnectionSummary, NetworkMode
from patchwright.runtime.errors import LayerRejected
from patchwright.runtime.execution.executor import Executor
from patchwright.runtime.features import ALL_FEATURES, SandboxFeature, SandboxFeatures
from patchwright.runtime.sandbox import (
    CA_VARIABLES,
    INDEX_VARIABLES,
    LayerNote,
    LayerSetup,
    Sandbox,
    Sandboxes,
)

# Commands see only these variables of the host's environment, because any other variable may be secret. The
# location of the TLS certificates is not secret, and commands need it in closed networks.
ALLOWED_VARIABLES = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", *CA_VARIABLES)


class LocalSandboxes:
    """Opens sandboxes on this machine, each in a temporary directory.

    Commands in these sandboxes have all permissions of this user. They get a clean environment,
    which contains only harmless variables of this process.
    """

    kind: Literal["docker", "local"] = "local"
    # Sandboxes use the network of this machine. Commands could bypass a proxy, because there is no isolation.
    network: NetworkMode = "open"

    def __init__(
        self,
        parent: Path,
        host_env: Mapping[str, str],
        ca_bundle: Path | None = None,
        package_index: str | None = None,
        features: tuple[SandboxFeature, ...] = ALL_FEATURES,
    ) -> None:
        """`host_env` is the environment of this process. Commands get only the variables that are known to be
        harmless.

        `ca_bundle` and `package_index` are the operator's settings. They override the variables of the host.
        Features that are not installed on this machine are left out of `features`.
        """
        self.features = tuple(feature for feature in features if is_available(feature, host_env.get("PATH")))
        self._parent = parent
        allowed = {key: host_env[key] for key in ALLOWED_VARIABLES if key in host_env}
        ca_variables = dict.fromkeys(CA_VARIABLES, str(ca_bundle)) if ca_bundle else {}
        # If the URL of the index contains a password, it is not passed on, because any command could read it.
        is_public = package_index and "@" not in urlsplit(package_index).netloc
        index = dict.fromkeys(INDEX_VARIABLES, package_index) if package_index and is_public else {}
        self._env = {**allowed, **ca_variables, **index}

    @asynccontextmanager
    async def open(
        self, name: str, *, online: bool = False, adoptable: bool = False
    ) -> AsyncIterator[Sandbox]:
        await asyncio.to_thread(_sweep, self._parent)
        directory = _create_directories(self._parent)
        home = directory / "home"
        env = self._env | {"HOME": str(home), "TMPDIR": str(directory / "tmp"), "GIT_CONFIG_NOSYSTEM": "1"}
        env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
        env.setdefault("LANG", "C.UTF-8")
        executor = Executor(directory / "tree", directory / "tmp", env)
        try:
            yield executor
        finally:
            await executor.close()
            # Some processes may have left the process tree of the shell. They still have this sandbox's HOME,
            # and are killed, too.
            processes.kill(processes.find_by_environment(f"HOME={home}"))
            await asyncio.to_thread(_remove, directory)

    @asynccontextmanager
    async def adopt(self, name: str) -> AsyncIterator[Sandbox | None]:
        yield None  # A killed process leaves nothing to adopt, because its shell ended with it.

    async def with_layer(
        self, name: str, repository: str, key: str, setup: LayerSetup
    ) -> tuple[Sandboxes, LayerNote]:
        raise LayerRejected("the local sandbox has no setup: it uses what is installed on this machine")

    async def prepare(self) -> None:
        return

    async def with_image(self, image: str) -> Sandboxes:
        return self  # Local sandboxes use no image. They all use this machine.

    async def content_digest(self) -> str | None:
        return None  # The digest is unknown, because the programs on this machine may change.

    async def sweep(self) -> None:
        await asyncio.to_thread(_sweep, self._parent)

    async def close(self) -> None:
        """Do nothing, because there is nothing to release."""

    def take_connections(self, name: str) -> tuple[ConnectionSummary, ...]:
        return ()  # Connections are not monitored.


def is_available(feature: SandboxFeature, path: str | None) -> bool:
    """Returns True if this feature is installed on this machine. `path` is the variable PATH."""
    return SandboxFeatures().has(feature) and (
        feature != "browser" or SandboxFeatures().chromium_program(path) is not None
    )


def _create_directories(parent: Path) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="sandbox-", dir=parent)).resolve()
    (directory / "owner").write_text(ownership.current_owner())
    for name in ("home", "tree", "tmp"):
        (directory / name).mkdir()
    return directory


def _sweep(parent: Path) -> None:
    """Remove the directories of sandboxes whose processes were killed."""
    for owner in parent.glob("sandbox-*/owner"):
        try:
            dead = ownership.is_dead(owner.read_text())
        except FileNotFoundError:  # Another process removes the same directories at the same time.
            continue
        if dead:
            processes.kill(processes.find_by_environment(f"HOME={owner.parent / 'home'}"))
            _remove(owner.parent)


def _remove(directory: Path) -> None:
    def unlock(function: object, path: str, error: object) -> None:
        # Another process removes the same directories at the same time.
        with contextlib.suppress(FileNotFoundError):
            # In a directory without write permission (a module cache, a test fixture), entries cannot be
            # deleted.
            Path(path).parent.chmod(0o700)
            if Path(path).is_dir() and not Path(path).is_symlink():
                Path(path).chmod(0o700)
                shutil.rmtree(path, ignore_errors=True)
            else:
                Path(path).unlink(missing_ok=True)

    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(directory, onerror=unlock)
