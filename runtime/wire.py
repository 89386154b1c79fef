"""What goes between host and container: frames of a length (4 bytes, big-endian) and JSON of these types."""

import asyncio

from pydantic import Field

from runtime.actions import Converse, Execute, Provide, ReadBytes, RunPython, SandboxAction, UseBrowser
from runtime.frozen import Frozen
from runtime.observations import Observation

VERSION = 4
SOCKET = "s"  # short: the path of a Unix socket has at most 107 bytes
KEY = "key"
MOST = 16 << 20  # bytes of a frame; two streams of an Execute in base64 are 11 MiB
HELLO = 16_384  # bytes of the first frame


class Hello(Frozen):
    """The first frame, from the container: who dials in."""

    version: int
    key: str = Field(default="", max_length=128)
    """Empty where the host has dialled: then it knows whom."""
    last: int = Field(default=0, ge=0, le=1 << 53)
    """Id of the last request that the server has seen; a host process that takes over goes on after it."""
    call: str = Field(default="", max_length=200)
    """The agent's call for which it was asked something last; empty: none yet."""
    called: int = Field(default=0, ge=0, le=1 << 53)
    """Id of the last request for that call: its answer is kept."""
    limits: str = Field(default="", max_length=8192)
    """What the kernel says that the server, and with it every command, is held to: true before the first one."""


class Request(Frozen):
    """Host to container. `id` grows by one with each action; the same id again asks for the same answer."""

    id: int = Field(ge=1)
    action: SandboxAction
    call: str = ""
    """The agent's call for which it is asked; empty: for none."""


class Answer(Frozen):
    """Container to host."""

    id: int
    observation: Observation


class FrameTooLarge(Exception):
    """A frame announces more bytes than are allowed."""


def largest_answer(action: SandboxAction) -> int:
    """Bytes of the largest honest answer to an action: no other costs the host more memory than that."""
    match action:
        case Execute() | Converse() | RunPython() | Provide() | UseBrowser():
            return MOST
        case ReadBytes(limit=limit):
            return limit * 4 // 3 + 4096
        case _:
            return 1 << 19  # 30,000 characters, escaped, and some words


async def receive(reader: asyncio.StreamReader, most: int) -> bytes:
    """The next frame. Raises FrameTooLarge, IncompleteReadError, ConnectionError."""
    length = int.from_bytes(await reader.readexactly(4), "big")
    if length > most:
        raise FrameTooLarge(f"a frame of {length:,} bytes, where {most:,} are allowed")
    return await reader.readexactly(length)


async def send(writer: asyncio.StreamWriter, message: Hello | Request | Answer) -> None:
    """Send one frame. Raises ConnectionError."""
    body = message.model_dump_json().encode()
    writer.write(len(body).to_bytes(4, "big") + body)
    await writer.drain()
