"""What people attached to a thread, made ready for the agent: pictures to look at, files to read."""

import asyncio
import html
import re
import struct
from posixpath import basename
from typing import get_args
from urllib.parse import unquote, urlsplit

from resolver.domain import Repo, Thread
from resolver.errors import ForgeError
from resolver.forge import Forge
from resolver.words.quotation import visible
from runtime.actions import WriteBytes
from runtime.frozen import Frozen
from runtime.observations import Failed, Picture
from runtime.sandbox import Sandbox

MOST = 8  # files of one thread, the first ones
MOST_SHOWN = 4  # pictures in the first message
MAX_SIDE = 8_000  # pixels; Anthropic refuses larger ones
MOST_URLS = 100  # of one thread that the forge is asked about

_URL = re.compile(r"https?://[^\s<>\"'()\[\]\\]{1,2000}")
_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png", ".png"),
    (b"\xff\xd8\xff", "image/jpeg", ".jpg"),
    (b"GIF87a", "image/gif", ".gif"),
    (b"GIF89a", "image/gif", ".gif"),
    (b"%PDF-", "application/pdf", ".pdf"),
)


class Attachment(Frozen):
    """One file that somebody attached."""

    name: str
    """In the sandbox; made of letters, digits, dot, dash and underscore."""
    media: str
    data: bytes

    @property
    def picture(self) -> Picture | None:
        """As a model can be shown it; None when it cannot."""
        size = _sides(self.data, self.media)
        if size is None or not all(0 < side <= MAX_SIDE for side in size):
            return None
        return Picture(media=self.media, data=self.data)


class Attached(Frozen):
    """What was attached to a thread."""

    files: tuple[Attachment, ...] = ()
    problems: tuple[str, ...] = ()
    """What could not be had, and why, a line each."""

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Those that the first message shows."""
        return tuple(filter(None, (file.picture for file in self.files)))[:MOST_SHOWN]


NOTHING = Attached()


async def attachments(thread: Thread, repo: Repo, forge: Forge) -> Attached:
    """The files whose addresses stand in the thread, where a person reading the page sees them.

    Their names tell them apart, and are the same another time, also when one of them is not to be had then.
    """
    texts = (thread.body, *(comment.body for comment in thread.comments))
    found = (html.unescape(url).rstrip(".,;:!?") for text in texts for url in _URL.findall(visible(text)[0]))
    urls = tuple(dict.fromkeys(found))[:MOST_URLS]
    gate = asyncio.Semaphore(MOST)
    wanted = 0

    async def fetch(url: str) -> bytes | str | None:
        nonlocal wanted
        async with gate:
            if wanted >= MOST:
                return None
            try:
                data = await forge.attachment(repo, url)
            except ForgeError as exc:
                return f"{_short(url)}: {exc}."
            wanted += data is not None
            return data

    files: list[Attachment] = []
    problems: list[str] = []
    number = 0
    for url, fetched in zip(urls, await asyncio.gather(*map(fetch, urls)), strict=True):
        number += fetched is not None
        if isinstance(fetched, bytes):
            made = _attachment(url, fetched, number)
            if isinstance(made, str):
                problems.append(made)
            elif len(files) < MOST:
                files.append(made)
        elif fetched:
            problems.append(fetched)
    return Attached(files=tuple(files), problems=tuple(problems[:MOST]))


async def put(attached: Attached, sandbox: Sandbox) -> Attached:
    """Write the files into the sandbox's scratch directory; what of them is there then."""
    there: list[Attachment] = []
    problems = list(attached.problems)
    for file in attached.files:
        seen = await sandbox.act(WriteBytes(path=f"{directory(sandbox)}/{file.name}", content=file.data))
        if isinstance(seen, Failed):
            problems.append(f"{file.name}: {seen.message}")
        else:
            there.append(file)
    return Attached(files=tuple(there), problems=tuple(problems))


def directory(sandbox: Sandbox) -> str:
    """Where attachments lie."""
    return f"{sandbox.scratch}/attachments"


def _attachment(url: str, data: bytes, number: int) -> Attachment | str:
    media, ending = _kind(data)
    if not media:
        return f"{_short(url)}: neither a picture nor a PDF nor text."
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", unquote(basename(urlsplit(url).path)))[-60:].lstrip(".-") or "file"
    name = stem if not ending or stem.lower().endswith(ending) else stem + ending
    return Attachment(name=f"{number}-{name}", media=media, data=data)


def _kind(data: bytes) -> tuple[str, str]:
    """Media type and ending by what the bytes are, whatever they are called; empty when they are none of ours."""
    for magic, media, ending in _MAGIC:
        if data.startswith(magic):
            return media, ending
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp", ".webp"
    try:
        data.decode()
    except UnicodeDecodeError:
        return "", ""
    return ("", "") if b"\0" in data else ("text/plain", "")


def _sides(data: bytes, media: str) -> tuple[int, int] | None:
    """Width and height, as far as a picture's head says; None for what a provider could not read."""
    if media not in get_args(Picture.model_fields["media"].annotation):
        return None
    try:
        match media:
            case "image/png" if data[12:16] == b"IHDR" and data[-8:-4] == b"IEND":
                return struct.unpack(">II", data[16:24])
            case "image/gif" if data.rstrip(b"\0").endswith(b";"):
                return struct.unpack("<HH", data[6:10])
            case "image/jpeg" if data.rstrip(b"\0").endswith(b"\xff\xd9"):
                return _sides_of_jpeg(data)
            case "image/webp" if len(data) >= struct.unpack("<I", data[4:8])[0] + 8:
                return _sides_of_webp(data)
            case _:
                return None
    except struct.error:
        return None


def _sides_of_jpeg(data: bytes) -> tuple[int, int] | None:
    """Source: ITU T.81, annex B: segments until a start of frame."""
    place = 2
    while place + 9 < len(data) and data[place] == 0xFF:
        kind = data[place + 1]
        if kind in range(0xC0, 0xD0) and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return width, height
        place += 2 + struct.unpack(">H", data[place + 2 : place + 4])[0]
    return None


def _sides_of_webp(data: bytes) -> tuple[int, int] | None:
    """Source: RFC 9649."""
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", data[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = struct.unpack("<I", data[21:25])[0]
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return tuple(int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))  # type: ignore[return-value]
        case _:
            return None


def _short(url: str) -> str:
    return url if len(url) <= 120 else url[:120] + "..."
