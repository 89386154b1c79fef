"""A workspace on a server that an API starts for it and deletes afterwards."""

import asyncio
from uuid import uuid4

from patchwright.resolver.errors import WorkspaceError
from patchwright.sdk.docker_sandbox_setup import Network
from patchwright.sdk.remote_workspace import RemoteWorkspace
from patchwright.sdk.server_client import ServerClient, ServerError

POLL_SECONDS = 1.0


class APIRemoteWorkspace(RemoteWorkspace):
    """A RemoteWorkspace whose Patchwright server is provisioned through an API: a runtime, such as a virtual machine.

    - `api_url` and `api_key` are the address of the API and its key.
    - `start_timeout` is the time in seconds that a runtime may take to start.

    `docs/library.md` describes the API. The runtime is deleted when the block ends, and also if it does not start.
    Raises ServerError if the API or the server rejects a request, and WorkspaceError if the runtime does not start.
    """

    def __init__(
        self,
        api_url: str,
        api_key: str | None = None,
        *,
        image: str | None = None,
        network: Network = "allowlist",
        start_timeout: float = 600.0,
    ) -> None:
        super().__init__("", image=image, network=network)
        self._api = ServerClient(api_url, api_key)
        self._start_timeout = start_timeout
        self._path = (
            "runtimes",
            uuid4().hex,
        )  # chosen here, so that a lost response leaves no unknown runtime

    async def _open(self) -> None:
        try:
            async with asyncio.timeout(self._start_timeout):
                runtime = (await self._api.request("PUT", *self._path)).json()
                while runtime["status"] == "starting":
                    await asyncio.sleep(POLL_SECONDS)
                    runtime = (await self._api.request("GET", *self._path)).json()
            if runtime["status"] != "running":
                raise WorkspaceError(f"The runtime did not start: its status is {runtime['status']!r}.")
            self.client = ServerClient(runtime["url"], runtime["api_key"])
            await super()._open()
        except BaseException as exc:
            try:
                await self._close(is_failed=True)
            except ServerError as left:
                exc.add_note(f"The runtime {self._path[1]} may still exist. {left}")
            if isinstance(exc, TimeoutError):
                raise WorkspaceError(
                    f"The runtime did not start within {self._start_timeout:.0f} s."
                ) from exc
            raise

    async def _close(self, *, is_failed: bool) -> None:
        try:
            await super()._close(is_failed=is_failed)
        finally:
            try:
                await self._api.request("DELETE", *self._path)
            finally:
                await self._api.close()
