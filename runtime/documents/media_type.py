"""Detects the type of an image, audio or video file from its first bytes."""

import struct
from dataclasses import dataclass
from typing import Literal

from patchwright.runtime.observations import ImageData

# Number of bytes to read. They contain the image size of almost all files, but a JPEG file may have a large
# preview before it.
HEADER_BYTES = 1 << 16
MAX_IMAGE_BYTES = 4 << 20  # bytes of an image that is shown to a model; Anthropic accepts 5 MB as base64
MAX_IMAGE_SIDE = 8_000  # pixels; Anthropic rejects larger images

MediaKind = Literal["image", "audio", "video"]


@dataclass(frozen=True, slots=True)
class MediaFile:
    """The type of a file that a model can look at or listen to."""

    kind: MediaKind
    media_type: str
    """Media type such as `image/png`. Source: iana.org/assignments/media-types"""
    size: tuple[int, int] | None = None
    """Width and height in pixels. None if the file is not an image, or if the size is not in its first bytes.
    """


def detect_media(head: bytes) -> MediaFile | None:
    """Return the media type of a file that begins with these bytes, or None if the type is unknown."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return MediaFile("image", "image/png", _read_size(head, 16, 4, "big"))
    if head.startswith((b"GIF87a", b"GIF89a")):
        return MediaFile("image", "image/gif", _read_size(head, 6, 2, "little"))
    if head.startswith(b"\xff\xd8\xff"):
        return MediaFile("image", "image/jpeg", _jpeg_size(head))
    if head.startswith(b"RIFF"):
        if head[8:12] == b"WEBP":
            return MediaFile("image", "image/webp", _webp_size(head))
        return MediaFile("audio", "audio/wav") if head[8:12] == b"WAVE" else None
    if head.startswith(b"ID3") or (head[:1] == b"\xff" and head[1:2] in (b"\xfb", b"\xf3", b"\xf2")):
        return MediaFile("audio", "audio/mpeg")
    if head.startswith(b"OggS"):
        return MediaFile("audio", "audio/ogg")
    if head.startswith(b"fLaC"):
        return MediaFile("audio", "audio/flac")
    if head[4:8] == b"ftyp":
        return MediaFile("audio", "audio/mp4") if head[8:11] == b"M4A" else MediaFile("video", "video/mp4")
    if head[4:8] in (b"moov", b"wide", b"mdat") and b"\0" in head[:4]:  # QuickTime without a file type
        return MediaFile("video", "video/quicktime")
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return MediaFile("video", "video/webm")
    return None


def load_image(data: bytes) -> ImageData | None:
    """Return a whole image file as an image for a model. Return None if providers would reject it, because it is
    damaged, too large, or in another format.
    """
    media = detect_media(data)
    if media is None or media.kind != "image" or media.size is None or len(data) > MAX_IMAGE_BYTES:
        return None
    if not all(0 < side <= MAX_IMAGE_SIDE for side in media.size):
        return None
    match media.media_type:
        case "image/png" if data[12:16] == b"IHDR" and data[-8:-4] == b"IEND":
            return ImageData(media_type="image/png", data=data)
        case "image/gif" if data.rstrip(b"\0").endswith(b";"):
            return ImageData(media_type="image/gif", data=data)
        case "image/jpeg" if data.rstrip(b"\0").endswith(b"\xff\xd9"):
            return ImageData(media_type="image/jpeg", data=data)
        case "image/webp" if len(data) >= int.from_bytes(data[4:8], "little") + 8:
            return ImageData(media_type="image/webp", data=data)
        case _:
            return None


def _read_size(
    head: bytes, offset: int, width: int, order: Literal["big", "little"]
) -> tuple[int, int] | None:
    first, second = head[offset : offset + width], head[offset + width : offset + 2 * width]
    return (int.from_bytes(first, order), int.from_bytes(second, order)) if len(second) == width else None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    """Read the size of a JPEG from its first frame header. Source: ITU-T T.81, annex B."""
    offset = 2
    while offset + 9 <= len(head) and head[offset] == 0xFF:
        marker, length = head[offset + 1], int.from_bytes(head[offset + 2 : offset + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = (int.from_bytes(head[offset + n : offset + n + 2], "big") for n in (5, 7))
            return width, height
        offset += 2 + max(length, 2)
    return None


def _webp_size(head: bytes) -> tuple[int, int] | None:
    """Read the size of a WebP image. Source: RFC 9649."""
    try:
        match head[12:16]:
            case b"VP8 ":
                width, height = struct.unpack("<HH", head[26:30])
                return width & 0x3FFF, height & 0x3FFF
            case b"VP8L":
                (bits,) = struct.unpack("<I", head[21:25])
                return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
            case b"VP8X" if len(head) >= 30:
                width, height = (int.from_bytes(head[at : at + 3], "little") + 1 for at in (24, 27))
                return width, height
            case _:
                return None
    except struct.error:
        return None
