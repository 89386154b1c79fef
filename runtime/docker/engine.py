"""Sends requests to the Docker engine. Only this module uses Docker's client and sees the client's errors."""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from patchwright.runtime.docker import build_log
from patchwright.runtime.docker.build_context import pack_files, split_reference
from patchwright.runtime.docker.engine_models import (
    ContainerInfo,
    ImageInfo,
    parse_inspected_image,
    parse_listed_container,
    parse_listed_image,
    parse_usage,
)
from patchwright.runtime.docker.ssh_tunnel import SshTunnel
from patchwright.runtime.errors import EngineDiskFull, EngineStopped, EngineUnavailable, ImageUnavailable
from patchwright.runtime.monitored_sandbox import ContainerUsage

if TYPE_CHECKING:
    import docker

REQUEST_TIMEOUT = 60  # seconds for any request other than a build, a pull, or a commit
REMOVAL_TIMEOUT = 20  # seconds to wait for a container that another process is removing
BUILD_TIMEOUT = 1800  # seconds for which a build may print no output, and for a commit
TAIL_LINES = 60  # number of lines at the end of a build's log that are searched for the reason
_MAX_PATH_BYTES = 1 << 15  # bytes of a path in JSON, which may need six bytes for each of 4,096

_T = TypeVar("_T")


class Engine:
    """One Docker engine. Methods raise EngineUnavailable if the engine does not respond or refuses access.

    Blocking calls run in a thread. A caller that is canceled still waits for its call to end. Otherwise, the
    call could create something after the caller's cleanup.
    """

    def __init__(self, client: "docker.APIClient", tunnel: SshTunnel | None = None) -> None:
        self._tunnel = tunnel
        self._client: Any = client  # Docker's client has incomplete types, so only this class uses them
        self._streams: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @property
    def is_local(self) -> bool:
        """True if the engine is reached through a socket of this machine. It may still run in a VM."""
        return self._tunnel is None and str(self._client.base_url).startswith("http+docker://localhost")

    @classmethod
    async def connect(cls, url: str | None = None) -> "Engine":
        """Connect to the engine at a URL, which may begin with ssh://. None means DOCKER_HOST."""
        if url is None or not url.startswith("ssh://"):
            return cls(await _run_in_thread(lambda: _connect_client(url)))
        tunnel = await _run_in_thread(lambda: SshTunnel(url))
        try:
            return cls(await _run_in_thread(lambda: _connect_client(tunnel.url)), tunnel)
        except BaseException:
            tunnel.close()
            raise

    async def info(self) -> dict[str, Any]:
        """Return information on the engine and its machine. `DockerRootDir` contains the images."""
        return dict(await _run_in_thread(self._client.info))

    async def find_image(self, name: str) -> "ImageInfo | None":
        """Return the local image with this name or id. Return None if no such image exists."""

        def find() -> "ImageInfo | None":
            import docker.errors

            try:
                inspected = self._client.inspect_image(name)
            except docker.errors.APIError as error:
                if error.status_code not in (400, 404):  # 400: the name is invalid, so there is no such image
                    raise
                return None
            return parse_inspected_image(inspected)

        return await _run_in_thread(find)

    async def list_images(self, repository: str, label: str | None = None) -> list["ImageInfo"]:
        """Return the local images of a repository, newest first. `label` is NAME or NAME=VALUE."""
        filters = {"label": label} if label else None
        listed = await _run_in_thread(lambda: self._client.images(repository, filters=filters))
        return sorted(map(parse_listed_image, listed), key=lambda image: -image.created)

    async def remove_image(self, name: str) -> bool:
        """Remove a tag, and also the image if it has no other tag. Return False if the image is in use or gone."""

        def remove() -> bool:
            import docker.errors

            try:
                self._client.remove_image(name)
            except docker.errors.APIError as error:
                if error.status_code not in (404, 409):
                    raise
                return False
            return True

        return await _run_in_thread(remove)

    async def find_changed_path(self, container: str, directory: str) -> str | None:
        """Return one path in `directory` that was added, changed or removed since the container was created.
        Return None if nothing changed.

        The engine's response may list ten million files, so it is read as a stream.
        """
        # Quotes in file names are escaped, so no name can contain this prefix.
        path = re.compile(rf'"Path":("{re.escape(directory)}/(?:[^"\\]|\\.)*")'.encode())

        def scan() -> str | None:
            url = self._client._url("/containers/{0}/changes", container)
            with self._client._get(url, stream=True) as response:
                self._client._raise_for_status(response)
                buffer = b""
                for chunk in response.iter_content(1 << 20):
                    buffer += chunk
                    if paths := path.findall(buffer):
                        # The longest path is that of the file; the shorter ones are its directories.
                        return str(json.loads(max(paths, key=len)))
                    buffer = buffer[-_MAX_PATH_BYTES:]
            return None

        return await _run_in_thread(scan)

    async def commit(self, container: str, tag: str, labels: Mapping[str, str]) -> None:
        """Commit a container as an image with this tag."""
        repository, _, name = tag.partition(":")
        lines = [f"LABEL {key}={json.dumps(value)}" for key, value in labels.items()]
        params = {"container": container, "repo": repository, "tag": name, "changes": lines}
        url, post = self._client._url("/commit"), self._client._post_json
        # The client's own method has the limit of short requests. A busy disk needs minutes for many files.
        commit = partial(post, url, None, params=params, timeout=BUILD_TIMEOUT)
        await _run_in_thread(lambda: self._client._raise_for_status(commit()))

    async def pull(self, image: str) -> None:
        """Pull an image. Raises ImageUnavailable."""

        def pull() -> None:
            import docker.errors

            repository, tag = split_reference(image)
            try:
                for line in self._client.pull(repository, tag=tag, stream=True, decode=True):
                    if "error" in line:
                        raise ImageUnavailable(build_log.pull_error(image, line["error"]))
            except docker.errors.APIError as error:
                raise ImageUnavailable(build_log.pull_error(image, error.explanation or error)) from error

        await _run_in_thread(pull)

    async def build(
        self,
        description: str,
        files: Mapping[str, bytes],
        tags: Sequence[str],
        *,
        network: bool = False,
        build_args: Mapping[str, str] | None = None,
        log_dir: Path | None = None,
    ) -> None:
        """Build an image with these tags. Raises ImageUnavailable, whose message contains the reason.

        If the build fails, saves its complete log in `log_dir`.
        """
        lines: list[str] = []
        networks = ("default", "host") if network else ("none",)
        reason = ""
        for network_mode in networks:
            lines.append(f"== {description}, network {network_mode}")
            build = partial(self._build, files, tags, network_mode, build_args or {}, lines)
            try:
                if await _run_in_thread(build) is None:
                    return
            except (EngineDiskFull, EngineStopped):
                raise
            except EngineUnavailable as error:  # a Docker proxy may forbid the host's network
                if not reason:
                    raise
                raise ImageUnavailable(reason + build_log.save_log(log_dir, lines)) from error
            reason = build_log.explain_failure(description, lines[-TAIL_LINES:])
            # An engine whose bridge network has no route (no iptables, a network in a VM) may still reach the
            # package index from the host's network. Only the build of a bundle ever uses the host's network.
            if network_mode == networks[-1] or not build_log.is_network_failure(lines[-TAIL_LINES:]):
                raise ImageUnavailable(reason + build_log.save_log(log_dir, lines))

    async def create(self, name: str, **config: Any) -> str:
        """Create a container and return its id. If an older container with our labels has this name, remove it."""
        created: list[str] = []

        def create() -> str:
            host_config = self._client.create_host_config(**config.pop("host"))
            create_container = partial(
                self._client.create_container, name=name, host_config=host_config, **config
            )
            created.append(str(self._replace_by_name(name, config["labels"], create_container)["Id"]))
            return created[0]

        try:
            return await _run_in_thread(create)
        except asyncio.CancelledError:
            for container in created:
                await self.remove(container)
            raise

    async def start(self, container: str) -> None:
        await _run_in_thread(lambda: self._client.start(container))

    async def inspect(self, container: str) -> dict[str, Any] | None:
        """Return the container's details, or None if it does not exist."""

        def inspect() -> dict[str, Any] | None:
            import docker.errors

            try:
                return dict(self._client.inspect_container(container))
            except docker.errors.NotFound:
                return None

        return await _run_in_thread(inspect)

    async def usage(self, container: str) -> ContainerUsage | None:
        """Return how much a container has written outside its mounts, or None if the container is gone.

        The engine visits every file that was written. This takes 0.5 s for 100,000 files.
        """
        ask = partial(self._client.containers, all=True, size=True, filters={"id": container})
        return next(map(parse_usage, await _run_in_thread(ask)), None)

    async def kill(self, container: str) -> None:
        """Kill the processes of a container. The files of the container can still be inspected."""

        def kill() -> None:
            import docker.errors

            try:
                self._client.kill(container)
            except docker.errors.APIError as error:
                if error.status_code not in (404, 409):
                    raise

        await _run_in_thread(kill)

    async def logs(self, container: str) -> str:
        """Return the last lines that the first process of a container has printed."""
        output = await _run_in_thread(lambda: self._client.logs(container, tail=TAIL_LINES))
        return bytes(output).decode("utf-8", "replace")

    async def list_containers(self, label: str) -> list[ContainerInfo]:
        """Return all containers with a label, running or not."""
        listed = await _run_in_thread(lambda: self._client.containers(all=True, filters={"label": label}))
        return [parse_listed_container(entry) for entry in listed]

    async def attach(self, container: str, argv: Sequence[str], user: str) -> Any:
        """Start a program in a running container. Return a socket for the program's input and output."""

        def attach() -> Any:
            execution = self._client.exec_create(container, list(argv), stdin=True, user=user)
            stream = self._client.exec_start(execution["Id"], socket=True)
            raw_socket = getattr(stream, "_sock", stream)  # the reader contains the socket
            raw_socket.settimeout(None)
            # Keeps a reference to the reader, because deleting the reader would close the socket.
            self._streams[raw_socket] = stream
            return raw_socket

        return await _run_in_thread(attach)

    async def remove(self, container: str) -> None:
        """Kill a container, if it exists, and remove the container with its anonymous volumes."""
        await _run_in_thread(lambda: self._remove(container))

    async def close(self) -> None:
        await _run_in_thread(self._client.close)
        if self._tunnel is not None:
            await _run_in_thread(self._tunnel.close)

    def _replace_by_name(self, name: str, own_labels: Collection[str], action: Callable[[], _T]) -> _T:
        """Run `action`, which gives a container this name. If a container with `own_labels` already has the
        name, remove that container. If one without these labels has the name, raise EngineUnavailable.
        """
        import docker.errors

        try:
            return action()
        except docker.errors.APIError as error:
            if error.status_code != 409:
                raise
            existing = self._client.inspect_container(name)
            if not set(own_labels) <= set(existing["Config"]["Labels"] or {}):
                raise EngineUnavailable(
                    f"the container name {name} is in use by another program: remove that container"
                ) from error
        self._remove(name)
        return action()

    def _remove(self, container: str) -> None:
        import docker.errors

        try:
            self._client.remove_container(container, force=True, v=True)
        except docker.errors.NotFound:
            pass
        except docker.errors.APIError as error:
            if error.status_code != 409:
                raise
            # Another process is already removing the container. Wait until the container is gone.
            with suppress(docker.errors.NotFound, OSError):
                self._client.wait(container, timeout=REMOVAL_TIMEOUT, condition="removed")

    def _build(
        self,
        files: Mapping[str, bytes],
        tags: Sequence[str],
        network: str,
        build_args: Mapping[str, str],
        lines: list[str],
    ) -> str | None:
        """Build the image. Return the reason if the build failed, otherwise None."""
        log = self._client.build(
            fileobj=pack_files(files),
            custom_context=True,
            tag=tags[0],
            network_mode=network,
            buildargs=dict(build_args),
            rm=True,
            forcerm=True,
            decode=True,
            timeout=BUILD_TIMEOUT,
        )
        if (error := build_log.read_build_output(log, lines)) is not None:
            return error
        if self._client.images(name=tags[0], quiet=True) == []:
            lines.append("error: the build ended without an image")
            return lines[-1]
        for tag in tags[1:]:
            repository, _, name = tag.partition(":")
            self._client.tag(tags[0], repository, name)
        return None


def _connect_client(url: str | None) -> "docker.APIClient":
    from docker import DockerClient, errors, utils  # imported late, because the import takes 0.15 s

    try:
        options = {"base_url": url} if url else utils.kwargs_from_env()
        url = options.get("base_url")
        client = DockerClient(timeout=REQUEST_TIMEOUT, **options)
        client.ping()
    except (errors.DockerException, OSError) as error:
        raise EngineUnavailable.no_response(url, error) from error
    return client.api


@contextmanager
def _translate_errors() -> Iterator[None]:
    import docker.errors

    try:
        yield
    except docker.errors.DockerException as error:
        is_disk_full = "no space left on device" in str(error).lower()
        error_class = EngineDiskFull if is_disk_full else EngineUnavailable
        raise error_class(f"the Docker engine rejected the request: {error}") from error
    except OSError as error:  # the HTTP client raises this if the engine does not respond
        raise EngineStopped(f"the Docker engine no longer responds: {error}") from error


async def _run_in_thread(call: Callable[[], _T]) -> _T:
    def run() -> _T:
        with _translate_errors():
            return call()

    task = asyncio.ensure_future(asyncio.to_thread(run))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.exception()  # otherwise, asyncio would log that nobody has read the exception
        raise
