"""Fetches the files that people attached to a thread: images for the model, and files for the sandbox."""

import asyncio
import html
import re
import struct
from posixpath import basename
from typing import Protocol, get_args
from urllib.parse import unquote, urlsplit

from patchwright.resolver.domain import Repo, Thread
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.text.untrusted import strip_hidden
from patchwright.runtime.actions import WriteBytes
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ActionFailure, ImageData
from patchwright.runtime.sandbox import Sandbox

MAX_FILES = 8  # files per thread; further files are ignored
MAX_IMAGES = 4  # images in the first message
MAX_SIDE = 8_000  # pixels; Anthropic rejects larger images
MAX_URLS = 100  # URLs per thread that are looked up

_URL = re.compile(r"https?://[^\s<>\"'()\[\]\\]{1,2000}")
_MAGIC_NUMBERS: tuple[tuple[bytes, str, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png", ".png"),
    (b"\xff\xd8\xff", "image/jpeg", ".jpg"),
    (b"GIF87a", "image/gif", ".gif"),
    (b"GIF89a", "image/gif", ".gif"),
    (b"%PDF-", "application/pdf", ".pdf"),
)


class Attachment(FrozenModel):
    """An attached file."""

    name: str
    """File name in the sandbox; contains only letters, digits, dot, dash and underscore."""
    media_type: str
    data: bytes

    @property
    def image(self) -> ImageData | None:
        """The attachment as an image for a model, or None if it is not a usable image."""
        size = _image_size(self.data, self.media_type)
        if size is None or not all(0 < side <= MAX_SIDE for side in size):
            return None
        return ImageData(media_type=self.media_type, data=self.data)


class ThreadAttachments(FrozenModel):
    """The attachments of a thread."""

    files: tuple[Attachment, ...] = ()
    problems: tuple[str, ...] = ()
    """One line for each attachment that could not be fetched, with the reason."""

    @property
    def images(self) -> tuple[ImageData, ...]:
        """The images that the first message shows."""
        return tuple(filter(None, (file.image for file in self.files)))[:MAX_IMAGES]


NO_ATTACHMENTS = ThreadAttachments()


class AttachmentSource(Protocol):
    """Downloads attachments; a forge is one."""

    async def download_attachment(self, repo: Repo, url: str) -> bytes | None:
        """Returns the content of the file, or None if the URL is no attachment. Raises ForgeError."""


async def fetch_attachments(thread: Thread, repo: Repo, forge: AttachmentSource) -> ThreadAttachments:
    """Fetches the files that are linked in the visible text of a thread.

    Each file gets a unique name. Its name stays the same when this function is called again for the thread, even
    if some other files can no longer be fetched.
    """
    texts = (thread.body, *(comment.body for comment in thread.comments))
    links = (
        html.unescape(url).rstrip(".,;:!?") for text in texts for url in _URL.findall(strip_hidden(text)[0])
    )
    urls = tuple(dict.fromkeys(links))[:MAX_URLS]
    semaphore = asyncio.Semaphore(MAX_FILES)
    attachment_count = 0

    async def fetch(url: str) -> bytes | str | None:
        nonlocal attachment_count
        async with semaphore:
            if attachment_count >= MAX_FILES:
                return None
            try:
                data = await forge.download_attachment(repo, url)
            except ForgeError as exc:
                return f"{_shorten_url(url)}: {exc}."
            attachment_count += data is not None
            return data

    files: list[Attachment] = []
    problems: list[str] = []
    number = 0
    for url, fetched in zip(urls, await asyncio.gather(*map(fetch, urls)), strict=True):
        number += fetched is not None
        if isinstance(fetched, bytes):
            attachment = _make_attachment(url, fetched, number)
            if isinstance(attachment, str):
                problems.append(attachment)
            elif len(files) < MAX_FILES:
                files.append(attachment)
        elif fetched:
            problems.append(fetched)
    return ThreadAttachments(files=tuple(files), problems=tuple(problems[:MAX_FILES]))


async def write_attachments(attachments: ThreadAttachments, sandbox: Sandbox) -> ThreadAttachments:
    """Writes the files into the sandbox's scratch directory. Returns only the attachments that were
    written.
    """
    written: list[Attachment] = []
    problems = list(attachments.problems)
    for file in attachments.files:
        result = await sandbox.act(
            WriteBytes(path=f"{attachments_directory(sandbox)}/{file.name}", content=file.data)
        )
        if isinstance(result, ActionFailure):
            problems.append(f"{file.name}: {result.message}")
        else:
            written.append(file)
    return ThreadAttachments(files=tuple(written), problems=tuple(problems))


def attachments_directory(sandbox: Sandbox) -> str:
    """Returns the path of the directory in the sandbox that contains the attachments."""
    return f"{sandbox.scratch}/attachments"


def _make_attachment(url: str, data: bytes, number: int) -> Attachment | str:
    media_type, suffix = _detect_media_type(data)
    if not media_type:
        return f"{_shorten_url(url)} is not an image, a PDF or a text file."
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", unquote(basename(urlsplit(url).path)))[-60:].lstrip(".-") or "file"
    name = stem if not suffix or stem.lower().endswith(suffix) else stem + suffix
    return Attachment(name=f"{number}-{name}", media_type=media_type, data=data)


def _detect_media_type(data: bytes) -> tuple[str, str]:
    """Returns the media type and the file name suffix for this content. Returns empty strings if the type is
    not supported.
    """
    for magic, media_type, suffix in _MAGIC_NUMBERS:
        if data.startswith(magic):
            return media_type, suffix
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp", ".webp"
    try:
        data.decode()
    except UnicodeDecodeError:
        return "", ""
    return ("", "") if b"\0" in data else ("text/plain", "")


def _image_size(data: bytes, media_type: str) -> tuple[int, int] | None:
    """Returns the width and height that an image's header states, or None if the header is damaged."""
    if media_type not in get_args(ImageData.model_fields["media_type"].annotation):
        return None
    try:
        match media_type:
            case "image/png" if data[12:16] == b"IHDR" and data[-8:-4] == b"IEND":
                return struct.unpack(">II", data[16:24])
            case "image/gif" if data.rstrip(b"\0").endswith(b";"):
                return struct.unpack("<HH", data[6:10])
            case "image/jpeg" if data.rstrip(b"\0").endswith(b"\xff\xd9"):
                return _jpeg_size(data)
            case "image/webp" if len(data) >= struct.unpack("<I", data[4:8])[0] + 8:
                return _webp_size(data)
            case _:
                return None
    except struct.error:
        return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Reads the size of a JPEG image from its start-of-frame segment. Source: ITU T.81, annex B."""
    offset = 2
    while offset + 9 < len(data) and data[offset] == 0xFF:
        kind = data[offset + 1]
        if kind in range(0xC0, 0xD0) and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[offset + 5 : offset + 9])
            return width, height
        offset += 2 + struct.unpack(">H", data[offset + 2 : offset + 4])[0]
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    """Reads the size of a WebP image. Source: RFC 9649."""
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


def _shorten_url(url: str) -> str:
    return url if len(url) <= 120 else url[:120] + "..."
