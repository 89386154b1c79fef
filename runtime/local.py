"""The local sandbox: a directory of its own and a clean environment, but no wall. For trusted use only."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from runtime import lease, processes
from runtime.egress.egress import Network, Visit
from runtime.errors import LayerRefused
from runtime.executor import Executor
from runtime.plugins import PLUGINS, Plugin, Plugins
from runtime.sandbox import CA_VARIABLES, INDEX_VARIABLES, Sandbox, Sandboxes

# All that a command sees of the host's environment. Everything else may be secret.
# Where TLS certificates come from is no secret, and closed networks do not work without it.
ALLOWED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", *CA_VARIABLES)


class LocalSandboxes:
    """Opens sandboxes on this machine, each in a temporary directory.

    A command in one can read and do what this user can: it protects nothing but the environment's variables.
    """

    kind: Literal["docker", "local"] = "local"
    network: Network = "open"  # this machine's own: no wall, so no proxy either

    def __init__(
        self,
        parent: Path,
        host: Mapping[str, str],
        ca_bundle: Path | None = None,
        package_index: str | None = None,
        plugins: tuple[Plugin, ...] = PLUGINS,
    ) -> None:
        """`host` is the environment of this process; only names known to be harmless are passed on.

        `ca_bundle` and `package_index` are the operator's, and go before what the host says of them.
        Of `plugins`, its sandboxes have those that are installed.
        """
        self.plugins = tuple(plugin for plugin in plugins if _has(plugin, host.get("PATH")))
        self._parent = parent
        allowed = {key: host[key] for key in ALLOWED if key in host}
        own = dict.fromkeys(CA_VARIABLES, str(ca_bundle)) if ca_bundle else {}
        # One with a password stays here: whoever runs commands there could read it.
        open_to_all = package_index and "@" not in urlsplit(package_index).netloc
        index = dict.fromkeys(INDEX_VARIABLES, package_index) if package_index and open_to_all else {}
        self._env = {**allowed, **own, **index}

    @asynccontextmanager
    async def open(self, name: str, *, online: bool = False, kept: bool = False) -> AsyncIterator[Sandbox]:
        await asyncio.to_thread(_sweep, self._parent)
        place = _make(self._parent)
        home = place / "home"
        env = self._env | {"HOME": str(home), "TMPDIR": str(place / "tmp"), "GIT_CONFIG_NOSYSTEM": "1"}
        env.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
        env.setdefault("LANG", "C.UTF-8")
        executor = Executor(place / "tree", place / "tmp", env)
        try:
            yield executor
        finally:
            await executor.close()
            # Whatever has slipped out of the shell's process tree still has our HOME.
            processes.kill(processes.with_environment(f"HOME={home}"))
            await asyncio.to_thread(_remove, place)

    @asynccontextmanager
    async def adopt(self, name: str) -> AsyncIterator[Sandbox | None]:
        yield None  # its shell was this process's child, and has ended with it

    async def derived(
        self, name: str, repository: str, key: str, fill: Callable[[Sandbox], Awaitable[None]]
    ) -> Sandboxes:
        raise LayerRefused("the local sandbox keeps nothing: what this machine has installed is all there is")

    async def prepare(self) -> None:
        return

    async def on(self, image: str) -> Sandboxes:
        return self  # this machine, whatever is on it

    async def contents(self) -> str | None:
        return None  # this machine, and whatever is installed on it by now

    async def sweep(self) -> None:
        await asyncio.to_thread(_sweep, self._parent)

    async def close(self) -> None:
        """Nothing is held."""

    def visits(self, name: str) -> tuple[Visit, ...]:
        return ()  # nobody watches


def _has(plugin: Plugin, path: str | None) -> bool:
    return Plugins().has(plugin) and (plugin != "browser" or Plugins().chromium(path) is not None)


def _make(parent: Path) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="sandbox-", dir=parent)).resolve()
    (place / "owner").write_text(lease.owner())
    for name in ("home", "tree", "tmp"):
        (place / name).mkdir()
    return place


def _sweep(parent: Path) -> None:
    """Remove what processes that were killed have left."""
    for owner in parent.glob("sandbox-*/owner"):
        try:
            dead = lease.is_dead(owner.read_text())
        except FileNotFoundError:  # two sweep at a time
            continue
        if dead:
            processes.kill(processes.with_environment(f"HOME={owner.parent / 'home'}"))
            _remove(owner.parent)


def _remove(place: Path) -> None:
    def unlock(function: object, path: str, error: object) -> None:
        with contextlib.suppress(FileNotFoundError):  # two sweep at a time
            # A directory without its write bit (a module cache, a test's fixture) keeps its entries.
            Path(path).parent.chmod(0o700)
            if Path(path).is_dir() and not Path(path).is_symlink():
                Path(path).chmod(0o700)
                shutil.rmtree(path, ignore_errors=True)
            else:
                Path(path).unlink(missing_ok=True)

    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(place, onerror=unlock)
