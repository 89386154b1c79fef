"""A workspace on a Patchwright server."""

from patchwright.resolver.errors import WorkspaceError
from patchwright.sdk.base_workspace import BaseWorkspace, CommandOutput
from patchwright.sdk.docker_sandbox_setup import Network
from patchwright.sdk.server_client import ServerClient, ServerError


class RemoteWorkspace(BaseWorkspace):
    """A container on a Patchwright server. It starts with an empty work tree and is removed when the block ends.

    - `host` is the server's address, such as `https://patchwright.example.com`.
    - `api_key` is a key of `patchwright api-key create`.
    - `image` is the base image; by default, the server's own.
    - `id` is the id of an existing workspace. It is not removed when the block ends.

    Raises ServerError if the server rejects a request or cannot be reached. Requests that change nothing twice are
    repeated if the connection fails.
    """

    def __init__(
        self,
        host: str,
        api_key: str | None = None,
        *,
        image: str | None = None,
        network: Network = "allowlist",
        id: str | None = None,
    ) -> None:
        self.client = ServerClient(host, api_key)
        self._id = id
        self._is_kept = id is not None
        self._spec = {"image": image, "network": network}

    @property
    def id(self) -> str:
        """The id on the server. Raises WorkspaceError if the workspace is not open."""
        if self._id is None:
            raise WorkspaceError(
                "The workspace is not open: use it in a block, `with RemoteWorkspace(...) as workspace`."
            )
        return self._id

    async def _open(self) -> None:
        if self._id is None:
            response = await self.client.request("POST", "workspaces", json=self._spec, timeout=600.0)
        else:
            response = await self.client.request("GET", "workspaces", self._id)
        body = response.json()
        self._id, self.working_dir = body["id"], body["working_dir"]

    async def _close(self, *, is_failed: bool) -> None:
        try:
            if self._id is not None and not self._is_kept:
                await self.client.request("DELETE", "workspaces", self._id)
        finally:
            await self.client.close()

    async def _execute(self, command: str, timeout: float) -> CommandOutput:
        response = await self.client.request(
            *("POST", "workspaces", self.id, "execute"),
            json={"command": command, "timeout": timeout},
            timeout=timeout + 60,
        )
        return CommandOutput.model_validate_json(response.content)

    async def _upload(self, path: str, content: bytes) -> None:
        await self.client.request(
            "PUT",
            "workspaces",
            self.id,
            "files",
            params={"path": path},
            content=content,
            headers={"content-type": "application/octet-stream"},
        )

    async def _download(self, path: str) -> bytes:
        try:
            response = await self.client.request("GET", "workspaces", self.id, "files", params={"path": path})
        except ServerError as exc:
            if exc.status == 404:
                raise FileNotFoundError(path) from exc
            raise
        return response.content

    async def _changed_files(self) -> tuple[str, ...]:
        response = await self.client.request("GET", "workspaces", self.id, "changes")
        return tuple(response.json()["paths"])

    async def _diff(self) -> bytes:
        return (await self.client.request("GET", "workspaces", self.id, "diff")).content
