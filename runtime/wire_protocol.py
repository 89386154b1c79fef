"""The messages between host and container. Each message is sent as a frame: the length (4 bytes, big-endian), and
then the message as JSON.
"""

import asyncio

from pydantic import Field

from patchwright.runtime.actions import (
    Execute,
    HostReply,
    ProcessExchange,
    ReadBytes,
    RunPython,
    SandboxAction,
    UseBrowser,
)
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import Observation

PROTOCOL_VERSION = 5
SOCKET_NAME = "s"  # The name is short, because the path of a Unix socket has at most 107 bytes.
KEY_FILE = "key"
# Maximum bytes of a frame. The two streams of an ExecuteResult take 11 MiB in base64.
MAX_FRAME_BYTES = 16 << 20
MAX_HELLO_BYTES = 16_384  # Maximum bytes of the first frame of a connection.


class Hello(FrozenModel):
    """The first frame, which the container sends to identify the server."""

    version: int
    key: str = Field(default="", max_length=128)
    """The connection key. Empty if the host opened the connection, because the server then need not identify
    itself.
    """
    last_request_id: int = Field(default=0, ge=0, le=1 << 53)
    """Id of the last request that the server received. A host process that takes over uses the next id."""
    call_id: str = Field(default="", max_length=200)
    """Id of the agent's last tool call that sent a request; empty if no tool call has sent one yet."""
    call_request_id: int = Field(default=0, ge=0, le=1 << 53)
    """Id of the last request for that tool call. The server keeps the result of this request."""
    process_limits: str = Field(default="", max_length=8192)
    """The limits that the kernel enforces for the server, and therefore for every command. The server reads
    them before the first command.
    """


class ActionRequest(FrozenModel):
    """A request from host to container. The `id` of a new request is one higher than that of the previous
    request. A request with an earlier id asks for the result of that earlier request again.
    """

    id: int = Field(ge=1)
    action: SandboxAction
    call_id: str = ""
    """Id of the agent's tool call to which the action belongs; empty if it belongs to no tool call."""


class ActionResponse(FrozenModel):
    """A response from container to host."""

    id: int
    observation: Observation


class FrameTooLarge(Exception):
    """The header of a frame announces more bytes than are allowed."""


def max_response_bytes(action: SandboxAction) -> int:
    """Return the size of the largest valid response in bytes. The host never reserves more memory for a
    response.
    """
    match action:
        case Execute() | ProcessExchange() | RunPython() | HostReply() | UseBrowser():
            return MAX_FRAME_BYTES
        case ReadBytes(limit=limit):
            return limit * 4 // 3 + 4096
        case _:
            return 1 << 19  # 30,000 escaped characters, and room for notes.


async def read_frame(reader: asyncio.StreamReader, max_bytes: int) -> bytes:
    """Read the next frame. Raises FrameTooLarge, IncompleteReadError, ConnectionError."""
    length = int.from_bytes(await reader.readexactly(4), "big")
    if length > max_bytes:
        raise FrameTooLarge(f"the frame has {length:,} bytes, more than the maximum of {max_bytes:,}")
    return await reader.readexactly(length)


async def write_frame(writer: asyncio.StreamWriter, message: Hello | ActionRequest | ActionResponse) -> None:
    """Send one frame. Raises ConnectionError."""
    body = message.model_dump_json().encode()
    writer.write(len(body).to_bytes(4, "big") + body)
    await writer.drain()
