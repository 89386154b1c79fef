"""The Docker engine: the one file that knows its client. Vendor errors end here."""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from runtime.docker.build_log import explain, follow, keep
from runtime.docker.image import archive, split_reference
from runtime.docker.listed import Container, Image, listed_container, listed_image, one_image
from runtime.docker.ssh import Tunnel
from runtime.errors import EngineFull, EngineStopped, EngineUnavailable, ImageUnavailable

if TYPE_CHECKING:
    import docker

ANSWER = 60  # seconds; no engine needs longer for what is asked here, builds and pulls excepted
REMOVAL = 20  # seconds, for a container that somebody else removes
BUILD = 1800  # seconds without a word from a build
TOLD = 60  # last lines of a build that are searched for the reason
_LONGEST_PATH = 1 << 15  # bytes in JSON, where a path's 4,096 take six times as many at worst
_NO_NETWORK = ("temporary failure", "could not resolve", "network is unreachable", "timed out")

Progress = Callable[[str], None]
_T = TypeVar("_T")


class Engine:
    """One Docker engine. Methods raise EngineUnavailable when it does not answer or refuses us.

    Blocking calls run in a thread; a cancelled caller still waits for its call, so that nothing is created
    behind the back of the clean-up that follows.
    """

    def __init__(self, client: "docker.APIClient", tunnel: Tunnel | None = None) -> None:
        self._tunnel = tunnel
        self._client: Any = client  # its types are incomplete; nothing untyped leaves this class
        self._streams: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @property
    def is_here(self) -> bool:
        """Whether it is reached by a socket of this machine (it may be in a VM all the same)."""
        return self._tunnel is None and str(self._client.base_url).startswith("http+docker://localhost")

    @classmethod
    async def connect(cls, url: str | None = None) -> "Engine":
        """The engine at a URL, ssh:// among them, or the one that DOCKER_HOST and its kin name."""
        if url is None or not url.startswith("ssh://"):
            return cls(await _in_thread(lambda: _connect(url)))
        tunnel = await _in_thread(lambda: Tunnel(url))
        try:
            return cls(await _in_thread(lambda: _connect(tunnel.url)), tunnel)
        except BaseException:
            tunnel.close()
            raise

    async def info(self) -> dict[str, Any]:
        """What it says of itself and of its machine; `DockerRootDir` is where it keeps images and containers."""
        return dict(await _in_thread(self._client.info))

    async def image(self, name: str) -> "Image | None":
        """A local image by name or id. None: there is none."""

        def find() -> "Image | None":
            import docker.errors

            try:
                found = self._client.inspect_image(name)
            except docker.errors.APIError as error:
                if error.status_code not in (400, 404):  # 400: no image can have this name
                    raise
                return None
            return one_image(found)

        return await _in_thread(find)

    async def images(self, repository: str, label: str | None = None) -> list["Image"]:
        """The local images of a repository, newest first; `label` as NAME or NAME=VALUE."""
        wanted = {"label": label} if label else None
        found = await _in_thread(lambda: self._client.images(repository, filters=wanted))
        return sorted(map(listed_image, found), key=lambda image: -image.created)

    async def remove_image(self, name: str) -> bool:
        """Remove a name, and the image with its last name. False: something still uses it, or it is gone."""

        def remove() -> bool:
            import docker.errors

            try:
                self._client.remove_image(name)
            except docker.errors.APIError as error:
                if error.status_code not in (404, 409):
                    raise
                return False
            return True

        return await _in_thread(remove)

    async def changed_below(self, container: str, directory: str) -> str | None:
        """What is new, changed or gone in a directory since a container was created: one path. None: nothing.

        The engine names all that is new in the container, perhaps ten million files: it is read as it comes.
        """
        # A quote in a name is escaped, so that none begins like this.
        path = re.compile(rf'"Path":("{re.escape(directory)}/(?:[^"\\]|\\.)*")'.encode())

        def look() -> str | None:
            url = self._client._url("/containers/{0}/changes", container)
            with self._client._get(url, stream=True) as answer:
                self._client._raise_for_status(answer)
                rest = b""
                for chunk in answer.iter_content(1 << 20):
                    rest += chunk
                    if found := path.findall(rest):
                        return str(json.loads(max(found, key=len)))  # the file, not the directories above it
                    rest = rest[-_LONGEST_PATH:]
            return None

        return await _in_thread(look)

    async def commit(self, container: str, tag: str, labels: Mapping[str, str]) -> None:
        """Keep what is in a container as an image of that name."""
        repository, _, name = tag.partition(":")
        lines = [f"LABEL {key}={json.dumps(value)}" for key, value in labels.items()]
        await _in_thread(lambda: self._client.commit(container, repository, name, changes=lines))

    async def pull(self, image: str) -> None:
        """Fetch an image. Raises ImageUnavailable."""

        def pull() -> None:
            import docker.errors

            repository, tag = split_reference(image)
            try:
                for line in self._client.pull(repository, tag=tag, stream=True, decode=True):
                    if "error" in line:
                        raise ImageUnavailable(_absent(image, line["error"]))
            except docker.errors.APIError as error:
                raise ImageUnavailable(_absent(image, error.explanation or error)) from error

        await _in_thread(pull)

    async def build(
        self,
        what: str,
        files: Mapping[str, bytes],
        tags: Sequence[str],
        *,
        network: bool = False,
        arguments: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        logs: Path | None = None,
    ) -> None:
        """Build a folder into an image of these names. Raises ImageUnavailable that says why.

        The whole log of a build that fails is kept in the directory `logs`.
        """
        loop = asyncio.get_running_loop()

        def tell(line: str) -> None:
            if progress is not None:
                loop.call_soon_threadsafe(progress, line)

        lines: list[str] = []
        modes = ("default", "host") if network else ("none",)
        why = ""
        for mode in modes:
            lines.append(f"== {what}, network {mode}")
            tell(lines[-1])
            build = partial(self._build, files, tags, mode, arguments or {}, lines, tell)
            try:
                if await _in_thread(build) is None:
                    return
            except (EngineFull, EngineStopped):
                raise
            except EngineUnavailable as refused:  # a gate lets no build into the host's network
                if not why:
                    raise
                raise ImageUnavailable(why + keep(logs, lines)) from refused
            why = explain(what, lines[-TOLD:])
            # An engine whose bridge leads nowhere (no iptables, a network in a VM) may still reach the
            # package index from the host's own network. Only the bundle's build ever sees that network.
            if mode == modes[-1] or not any(sign in "\n".join(lines[-TOLD:]).lower() for sign in _NO_NETWORK):
                raise ImageUnavailable(why + keep(logs, lines))

    async def create(self, name: str, **config: Any) -> str:
        """Create a container, in place of one of that name if that is ours. Its id."""
        made: list[str] = []

        def create() -> str:
            host = self._client.create_host_config(**config.pop("host"))
            make = partial(self._client.create_container, name=name, host_config=host, **config)
            made.append(str(self._in_place(name, config["labels"], make)["Id"]))
            return made[0]

        try:
            return await _in_thread(create)
        except asyncio.CancelledError:
            for container in made:
                await self.remove(container)
            raise

    async def rename(self, container: str, name: str, ours: Collection[str]) -> None:
        """Give a container another name, in place of one of that name if it has the labels `ours`."""
        await _in_thread(lambda: self._in_place(name, ours, partial(self._client.rename, container, name)))

    async def start(self, container: str) -> None:
        await _in_thread(lambda: self._client.start(container))

    async def inspect(self, container: str) -> dict[str, Any] | None:
        """None: there is no such container."""

        def inspect() -> dict[str, Any] | None:
            import docker.errors

            try:
                return dict(self._client.inspect_container(container))
            except docker.errors.NotFound:
                return None

        return await _in_thread(inspect)

    async def size(self, container: str) -> int | None:
        """Bytes of the files that a container has written outside of its mounts. None: it is gone.

        The engine walks them: 4 ms for none, 0.5 s for 100,000.
        """
        found = await _in_thread(
            lambda: self._client.containers(all=True, size=True, filters={"id": container})
        )
        return int(found[0].get("SizeRw") or 0) if found else None

    async def kill(self, container: str) -> None:
        """End a container's processes; what they left can still be looked at. One that has ended is fine."""

        def kill() -> None:
            import docker.errors

            try:
                self._client.kill(container)
            except docker.errors.APIError as error:
                if error.status_code not in (404, 409):
                    raise

        await _in_thread(kill)

    async def logs(self, container: str) -> str:
        """The last lines that a container's first process wrote."""
        output = await _in_thread(lambda: self._client.logs(container, tail=TOLD))
        return bytes(output).decode("utf-8", "replace")

    async def containers(self, label: str) -> list[Container]:
        """All containers with a label, running or not."""
        found = await _in_thread(lambda: self._client.containers(all=True, filters={"label": label}))
        return [listed_container(each) for each in found]

    async def attach(self, container: str, argv: Sequence[str], user: str) -> Any:
        """A stream to a program that is started in a running container: a socket, as the client has it."""

        def attach() -> Any:
            made = self._client.exec_create(container, list(argv), stdin=True, user=user)
            stream = self._client.exec_start(made["Id"], socket=True)
            plain = getattr(stream, "_sock", stream)  # of the reader that wraps it
            plain.settimeout(None)
            self._streams[plain] = stream  # the reader would close the socket with its own end
            return plain

        return await _in_thread(attach)

    async def remove(self, container: str) -> None:
        """Kill and remove a container, with its anonymous volumes. One that is gone is fine."""
        await _in_thread(lambda: self._remove(container))

    async def close(self) -> None:
        await _in_thread(self._client.close)
        if self._tunnel is not None:
            await _in_thread(self._tunnel.close)

    def _in_place(self, name: str, ours: Collection[str], act: Callable[[], _T]) -> _T:
        """Do what takes a name, in place of the container that has it, if that has the labels `ours`."""
        import docker.errors

        try:
            return act()
        except docker.errors.APIError as error:
            if error.status_code != 409:
                raise
            old = self._client.inspect_container(name)
            if not set(ours) <= set(old["Config"]["Labels"] or {}):
                raise EngineUnavailable(f"a container {name} exists that is not ours: remove it") from error
        self._remove(name)
        return act()

    def _remove(self, container: str) -> None:
        import docker.errors

        try:
            self._client.remove_container(container, force=True, v=True)
        except docker.errors.NotFound:
            pass
        except docker.errors.APIError as error:
            if error.status_code != 409:
                raise
            # Somebody else is already removing it: whoever asks here goes on after that.
            with suppress(docker.errors.NotFound, OSError):
                self._client.wait(container, timeout=REMOVAL, condition="removed")

    def _build(
        self,
        files: Mapping[str, bytes],
        tags: Sequence[str],
        network: str,
        arguments: Mapping[str, str],
        lines: list[str],
        tell: Progress,
    ) -> str | None:
        """Why it failed."""
        log = self._client.build(
            fileobj=archive(files),
            custom_context=True,
            tag=tags[0],
            network_mode=network,
            buildargs=dict(arguments),
            rm=True,
            forcerm=True,
            decode=True,
            timeout=BUILD,
        )
        if (error := follow(log, lines, tell)) is not None:
            return error
        if self._client.images(name=tags[0], quiet=True) == []:
            lines.append("error: the build ended without an image")
            return lines[-1]
        for tag in tags[1:]:
            repository, _, name = tag.partition(":")
            self._client.tag(tags[0], repository, name)
        return None


def _absent(image: str, reason: object) -> str:
    return f"the base image {image} is not here and cannot be pulled ({reason}): load it, or choose another"


def _connect(url: str | None) -> "docker.APIClient":
    import docker  # late: 0.15 s that only those pay who use it
    import docker.errors

    try:
        client = docker.DockerClient(url, timeout=ANSWER) if url else docker.from_env(timeout=ANSWER)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise EngineUnavailable(
            f"no Docker engine answers: start it and let this user reach it, or choose the local sandbox ({error})"
        ) from error
    return client.api


@contextmanager
def _translated() -> Iterator[None]:
    import docker.errors

    try:
        yield
    except docker.errors.DockerException as error:
        full = "no space left on device" in str(error).lower()
        kind = EngineFull if full else EngineUnavailable
        raise kind(f"the Docker engine refused: {error}") from error
    except OSError as error:  # what the HTTP client raises when nobody answers
        raise EngineStopped(f"the Docker engine does not answer any more: {error}") from error


async def _in_thread(call: Callable[[], _T]) -> _T:
    def run() -> _T:
        with _translated():
            return call()

    task = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.exception()  # nobody is there to hear it
        raise
