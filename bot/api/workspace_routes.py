"""The routes of `/workspaces`: create workspaces, run commands in them, and move files."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi import Depends as Depend
from pydantic import ConfigDict, Field

from patchwright.bot.api.conversation_routes import Reader, Service, Writer
from patchwright.bot.api.openapi import problems
from patchwright.bot.conversation_models import WorkspaceRecord, WorkspaceSpec
from patchwright.bot.conversations.server_workspace import ServerWorkspace
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.sdk.base_workspace import CommandOutput

router = APIRouter(prefix="/workspaces", tags=["workspaces"])

BINARY = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
BINARY_BODY = {"requestBody": {"required": True, **BINARY}}

FilePath = Annotated[
    str, Query(min_length=1, max_length=4096, description="Path, relative to the work tree or absolute.")
]


class WorkspaceBody(FrozenModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    id: str
    image: str | None
    """Base image; null for the server's own."""
    network: str
    """Network access. It is less than requested if the server does not allow more."""
    working_dir: str
    """Absolute path of the work tree in the container."""


class CommandBody(FrozenModel):
    command: str = Field(min_length=1, max_length=100_000, description="The command, as typed into bash.")
    timeout: float = Field(default=120.0, gt=0, le=1800, description="Seconds.")


class Changes(FrozenModel):
    paths: tuple[str, ...]


async def find_workspace(service: Service, id: Annotated[str, Path()]) -> WorkspaceRecord:
    """Returns the workspace of the path. Raises HTTPException if there is none."""
    if (record := await service.records.get_workspace(id)) is None:
        raise HTTPException(404, "Workspace not found.")
    return record


Found = Annotated[WorkspaceRecord, Depend(find_workspace)]


@router.post("", status_code=201, responses=problems(400, 404, 408, 413, 415, 422, 503))
async def create_workspace(_: Writer, spec: WorkspaceSpec, service: Service) -> WorkspaceBody:
    """Creates a workspace with an empty work tree and starts its container."""
    record = await service.workspaces.create(spec)
    try:
        async with service.workspaces.use(record) as workspace:
            return _describe(record, workspace)
    except BaseException:
        await service.records.delete_workspace(record.id)
        raise


@router.get("/{id}", responses=problems(404, 409, 503))
async def read_workspace(_: Reader, record: Found, service: Service) -> WorkspaceBody:
    """Returns a workspace. Starts its container if this server has none."""
    async with service.workspaces.use(record) as workspace:
        return _describe(record, workspace)


@router.delete("/{id}", status_code=204, response_class=Response, responses=problems(404, 409))
async def delete_workspace(_: Writer, record: Found, service: Service) -> None:
    """Removes a workspace with its files and its container."""
    await service.workspaces.delete(record.id)


@router.post("/{id}/execute", responses=problems(400, 404, 408, 409, 413, 415, 422, 503))
async def execute(_: Writer, record: Found, body: CommandBody, service: Service) -> CommandOutput:
    """Runs a command and returns its output. A failed command is no error of this request."""
    async with service.workspaces.use(record) as workspace:
        return await workspace.execute(body.command, body.timeout)


@router.put(
    "/{id}/files",
    status_code=204,
    response_class=Response,
    responses=problems(404, 408, 409, 413, 422, 503),
    openapi_extra=BINARY_BODY,
)
async def upload_file(_: Writer, record: Found, path: FilePath, request: Request, service: Service) -> None:
    """Writes a file with the body of the request."""
    content = await request.body()
    async with service.workspaces.use(record) as workspace:
        await workspace.upload(path, content)


@router.get(
    "/{id}/files",
    response_class=Response,
    responses={200: {"description": "The content of the file.", **BINARY}, **problems(404, 409, 422, 503)},
)
async def download_file(_: Reader, record: Found, path: FilePath, service: Service) -> Response:
    """Returns the content of a file."""
    async with service.workspaces.use(record) as workspace:
        try:
            content = await workspace.download(path)
        except FileNotFoundError as exc:
            raise HTTPException(404, "There is no such file.") from exc
    return Response(content, media_type="application/octet-stream")


@router.get("/{id}/changes", responses=problems(404, 409, 503))
async def list_changes(_: Reader, record: Found, service: Service) -> Changes:
    """Returns the paths of all files that differ from the empty work tree."""
    async with service.workspaces.use(record) as workspace:
        return Changes(paths=await workspace.read_changes())


@router.get(
    "/{id}/diff",
    response_class=Response,
    responses={
        200: {
            "description": "A patch for `git apply`.",
            "content": {"text/x-diff": {"schema": {"type": "string"}}},
        },
        **problems(404, 409, 503),
    },
)
async def read_diff(_: Reader, record: Found, service: Service) -> Response:
    """Returns the difference between the empty work tree and now as a patch."""
    async with service.workspaces.use(record) as workspace:
        patch = await workspace.take_patch()
    return Response(patch.diff, media_type="text/x-diff")


def _describe(record: WorkspaceRecord, workspace: ServerWorkspace) -> WorkspaceBody:
    return WorkspaceBody(
        id=record.id,
        image=record.spec.image,
        network=workspace.network,
        working_dir=workspace.working_dir,
    )
