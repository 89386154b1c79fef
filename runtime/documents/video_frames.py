"""Extracts frames of a video as JPEG files, scaled down for a model."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av

MAX_SIDE_PIXELS = 1024  # maximum pixels of the longer side of a frame


@dataclass(frozen=True, slots=True)
class VideoFrame:
    number: int
    """Index of the frame in the order in which frames are shown, from 0."""
    path: Path


def extract_frames(video: Path, interval: int, directory: Path) -> Iterator[VideoFrame]:
    """Yield every `interval`-th frame, starting with the first.

    Raises OSError or ValueError if the file is not a video.
    """
    with video.open("rb") as file, av.open(file, mode="r", metadata_errors="replace") as container:
        if not container.streams.video:
            raise ValueError("it has no picture")
        for number, frame in enumerate(container.decode(container.streams.video[0])):
            if number % interval == 0:
                path = directory / f"frame-{number:06}.jpg"
                path.write_bytes(_encode_jpeg(frame))
                yield VideoFrame(number, path)


def _encode_jpeg(frame: av.VideoFrame) -> bytes:
    scale = min(1.0, MAX_SIDE_PIXELS / max(frame.width, frame.height))
    width, height = (max(2, round(side * scale / 2) * 2) for side in (frame.width, frame.height))
    codec = av.CodecContext.create("mjpeg", "w")
    assert isinstance(codec, av.VideoCodecContext)
    codec.width, codec.height, codec.pix_fmt = width, height, "yuvj420p"
    codec.time_base = Fraction(1, 25)
    codec.options = {"qmin": "2", "qmax": "8"}
    picture = frame.reformat(width=width, height=height, format="yuvj420p")
    picture.pts = 0
    return b"".join(bytes(packet) for packet in [*codec.encode(picture), *codec.encode(None)])
