"""Fetches the files that people attached to a thread: images for the model, and files for the sandbox."""

import asyncio
import html
import re
from posixpath import basename, splitext
from typing import Protocol
from urllib.parse import unquote, urlsplit

from patchwright.resolver.domain import Repo, Thread
from patchwright.resolver.errors import ForgeError
from patchwright.resolver.text.untrusted import strip_hidden
from patchwright.runtime.actions import WriteBytes
from patchwright.runtime.documents.media_type import HEADER_BYTES, detect_media, load_image
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.observations import ActionFailure, ImageData
from patchwright.runtime.sandbox import Sandbox

MAX_FILES = 8  # files per thread; further files are ignored
MAX_TOTAL_BYTES = 50_000_000  # bytes of all files of a thread; further files are named, but not kept
MAX_IMAGES = 4  # images in the first message
MAX_URLS = 100  # URLs per thread that are looked up
_PARALLEL_DOWNLOADS = 4
_WRITE_BYTES = 3 << 20  # bytes that are written to the sandbox at once; `WriteBytes` accepts 4 MiB

_URL = re.compile(r"https?://[^\s<>\"'()\[\]\\]{1,2000}")
_SUFFIXES: dict[str, tuple[str, ...]] = {
    "application/pdf": (".pdf",),
    "application/zip": (".zip", ".docx", ".pptx", ".xlsx", ".xlsm"),
    "application/gzip": (".gz", ".tgz"),
    "image/png": (".png",),
    "image/jpeg": (".jpg", ".jpeg"),
    "image/gif": (".gif",),
    "image/webp": (".webp",),
    "audio/wav": (".wav",),
    "audio/mpeg": (".mp3",),
    "audio/ogg": (".ogg", ".oga", ".opus"),
    "audio/flac": (".flac",),
    "audio/mp4": (".m4a",),
    "video/mp4": (".mp4", ".mov", ".m4v"),
    "video/quicktime": (".mov",),
    "video/webm": (".webm", ".mkv"),
}
"""The suffixes that a file name may have for each media type. A file with another suffix gets the first one, because
the sandbox chooses a converter by the suffix.
"""


class Attachment(FrozenModel):
    """An attached file."""

    name: str
    """File name in the sandbox; contains only letters, digits, dot, dash and underscore."""
    media_type: str
    data: bytes

    @property
    def image(self) -> ImageData | None:
        """The attachment as an image for a model, or None if it is not a usable image."""
        return load_image(self.data)


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
    semaphore = asyncio.Semaphore(_PARALLEL_DOWNLOADS)
    attachment_count = total_bytes = 0

    async def fetch(url: str) -> bytes | str | None:
        nonlocal attachment_count, total_bytes
        async with semaphore:
            if attachment_count >= MAX_FILES or total_bytes > MAX_TOTAL_BYTES:
                return None
            try:
                data = await forge.download_attachment(repo, url)
            except ForgeError as exc:
                return f"{_shorten_url(url)}: {exc}."
            attachment_count += data is not None
            total_bytes += len(data or b"")
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
            elif sum(len(file.data) for file in files) + len(fetched) > MAX_TOTAL_BYTES:
                limit = f"{MAX_TOTAL_BYTES // 1_000_000} MB"
                problems.append(f"{_shorten_url(url)}: all files together exceed {limit}.")
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
        failure = await _write_file(sandbox, f"{attachments_directory(sandbox)}/{file.name}", file.data)
        if failure is not None:
            problems.append(f"{file.name}: {failure.message}")
        else:
            written.append(file)
    return ThreadAttachments(files=tuple(written), problems=tuple(problems))


async def _write_file(sandbox: Sandbox, path: str, data: bytes) -> ActionFailure | None:
    for offset in range(0, len(data) or 1, _WRITE_BYTES):
        part = WriteBytes(path=path, content=data[offset : offset + _WRITE_BYTES], append=offset > 0)
        if isinstance(result := await sandbox.act(part), ActionFailure):
            return result
    return None


def attachments_directory(sandbox: Sandbox) -> str:
    """Returns the path of the directory in the sandbox that contains the attachments."""
    return f"{sandbox.scratch}/attachments"


def _make_attachment(url: str, data: bytes, number: int) -> Attachment | str:
    media_type = _detect_media_type(data)
    if not media_type:
        return f"{_shorten_url(url)} is not a text, picture, recording, document or archive."
    stem = re.sub(r"[^A-Za-z0-9._-]", "_", unquote(basename(urlsplit(url).path.rstrip("/"))))[-60:].lstrip(
        ".-"
    )
    name = stem or "file"
    suffixes = _SUFFIXES.get(media_type)
    if suffixes and splitext(name)[1].lower() not in suffixes:
        name += suffixes[0]
    return Attachment(name=f"{number}-{name}", media_type=media_type, data=data)


def _detect_media_type(data: bytes) -> str:
    """Returns the media type of this content, or an empty string if the type is not supported. Ignores what the URL
    and the server say, because both may lie.
    """
    if data.startswith(b"%PDF-"):
        return "application/pdf"
    if data.startswith((b"PK\3\4", b"PK\5\6")):
        return "application/zip"
    if data.startswith(b"\x1f\x8b"):
        return "application/gzip"
    if (media := detect_media(data[:HEADER_BYTES])) is not None:
        return media.media_type
    try:
        data.decode()
    except UnicodeDecodeError:
        return ""
    return "" if b"\0" in data else "text/plain"


def _shorten_url(url: str) -> str:
    return url if len(url) <= 120 else url[:120] + "..."
