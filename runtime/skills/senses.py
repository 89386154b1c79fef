"""Pictures, recordings and videos, described by a model that the program asks."""

from __future__ import annotations

import json
import tempfile

from . import host
from .mistakes import Mistake, existing, text, told, whole

FRAMES = 16  # of a video that are shown to a model


@told
def parse_audio(file_path: str, model: str = "whisper-1") -> None:
    """Print what is said in a recording (mp3, wav, m4a, ogg, flac, webm; at most 25 MB).

    (A skill because: it asks a model that writes speech down.)
    """
    path = existing(file_path, "file_path")
    _ask("audio", [str(path)], "", text("model", model))


@told
def parse_image(file_path: str, task: str = "Describe this image as detail as possible.") -> None:
    """Print what a model that sees answers to the task about a picture (png, jpg, gif or webp; at most 4 MB).

    Name in the task what you need to know: exact words, numbers, colours, what is where.
    (A skill because: it asks a model that sees.)
    """
    path = existing(file_path, "file_path")
    _ask("image", [str(path)], text("task", task))


@told
def parse_video(
    file_path: str, task: str = "Describe this image as detail as possible.", frame_interval: int = 30
) -> None:
    """Print what a model that sees answers to the task about a video: it is shown each frame_interval-th frame.

    It is shown at most 16 frames, beginning with the first: for a long video take a larger frame_interval.
    (A skill because: it asks a model that sees.)
    """
    path = existing(file_path, "file_path")
    if whole("frame_interval", frame_interval) < 1:
        raise Mistake(f"frame_interval must be at least 1, not {frame_interval}")
    task = text("task", task)
    with tempfile.TemporaryDirectory(prefix="frames-", dir=host.scratch()) as place:
        try:
            told_of = json.loads(host.convert("frames", str(path), str(frame_interval), str(FRAMES), place))
        except RuntimeError as reason:
            raise Mistake(str(reason)) from None
        numbers = [frame["number"] for frame in told_of["frames"]]
        print(f"[shown to the model: the frames {', '.join(map(str, numbers))}]")
        if told_of["more"]:
            print(f"[the video goes on: a frame_interval of more than {frame_interval} reaches further]")
        _ask("video", [frame["path"] for frame in told_of["frames"]], task)


def _ask(sense: str, files: list[str], task: str, model: str | None = None) -> None:
    try:
        print(host.ask(sense, files, task, model))
    except RuntimeError as reason:
        raise Mistake(str(reason)) from None
