"""What kind of picture, recording or video a file is, told by its first bytes."""

from dataclasses import dataclass
from typing import Literal

HEAD = 1 << 16  # bytes that are enough to tell, but for a JPEG's size behind a large preview

Kind = Literal["image", "audio", "video"]


@dataclass(frozen=True, slots=True)
class Medium:
    """A kind of file that a model looks at or listens to."""

    kind: Kind
    type: str
    """Such as `image/png`. Source: iana.org/assignments/media-types"""
    size: tuple[int, int] | None = None
    """Width and height in pixels; None: not told by the first bytes, or of no picture."""


def medium(head: bytes) -> Medium | None:
    """None: it is none that we know."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return Medium("image", "image/png", _pair(head, 16, 4, "big"))
    if head.startswith((b"GIF87a", b"GIF89a")):
        return Medium("image", "image/gif", _pair(head, 6, 2, "little"))
    if head.startswith(b"\xff\xd8\xff"):
        return Medium("image", "image/jpeg", _jpeg_size(head))
    if head.startswith(b"RIFF"):
        if head[8:12] == b"WEBP":
            return Medium("image", "image/webp")
        return Medium("audio", "audio/wav") if head[8:12] == b"WAVE" else None
    if head.startswith(b"ID3") or (head[:1] == b"\xff" and head[1:2] in (b"\xfb", b"\xf3", b"\xf2")):
        return Medium("audio", "audio/mpeg")
    if head.startswith(b"OggS"):
        return Medium("audio", "audio/ogg")
    if head.startswith(b"fLaC"):
        return Medium("audio", "audio/flac")
    if head[4:8] == b"ftyp":
        return Medium("audio", "audio/mp4") if head[8:11] == b"M4A" else Medium("video", "video/mp4")
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return Medium("video", "video/webm")
    return None


def _pair(head: bytes, at: int, width: int, order: Literal["big", "little"]) -> tuple[int, int] | None:
    one, two = head[at : at + width], head[at + width : at + 2 * width]
    return (int.from_bytes(one, order), int.from_bytes(two, order)) if len(two) == width else None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    """From the first frame header. Source: ITU-T T.81, annex B."""
    at = 2
    while at + 9 <= len(head) and head[at] == 0xFF:
        marker, length = head[at + 1], int.from_bytes(head[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = (int.from_bytes(head[at + n : at + n + 2], "big") for n in (5, 7))
            return width, height
        at += 2 + max(length, 2)
    return None
