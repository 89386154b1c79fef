"""Describes images, audio files and videos. The host sends them to a model and returns the answer."""

from __future__ import annotations

import json
import tempfile

from . import host
from .skill_errors import SkillError, print_errors, require_file, require_integer, require_text

MAX_FRAMES = 16  # frames of a video that are shown to a model


@print_errors
def parse_audio(file_path: str, model: str = "whisper-1") -> None:
    """Print a transcript of an audio file (mp3, wav, m4a, ogg, flac, webm; at most 25 MB).

    (Calls another model: code in the sandbox cannot reach a transcription model in another way.)
    """
    path = require_file(file_path, "file_path")
    _print_answer("audio", [str(path)], "", require_text("model", model))


@print_errors
def parse_image(file_path: str, task: str = "Describe this image in detail.") -> None:
    """Print a vision model's answer to the task about an image (png, jpg, gif or webp; at most 4 MB).

    State in the task what you need to know: exact words, numbers, colors, positions.

    (Calls another model: code in the sandbox cannot reach a vision model in another way.)
    """
    path = require_file(file_path, "file_path")
    _print_answer("image", [str(path)], require_text("task", task))


@print_errors
def parse_video(
    file_path: str, task: str = "Describe this video in detail.", frame_interval: int = 30
) -> None:
    """Print a vision model's answer to the task about a video. The model sees every frame_interval-th frame.

    It sees at most 16 frames, starting with the first: use a larger frame_interval for a long video.

    (Calls another model: code in the sandbox cannot reach a vision model in another way.)
    """
    path = require_file(file_path, "file_path")
    if require_integer("frame_interval", frame_interval) < 1:
        raise SkillError(f"frame_interval must be at least 1, not {frame_interval}")
    task = require_text("task", task)
    with tempfile.TemporaryDirectory(prefix="frames-", dir=host.scratch_directory()) as directory:
        try:
            result = json.loads(
                host.convert_document("frames", str(path), str(frame_interval), str(MAX_FRAMES), directory)
            )
        except RuntimeError as error:
            raise SkillError(str(error)) from None
        numbers = [frame["number"] for frame in result["frames"]]
        print(f"[frames shown to the model: {', '.join(map(str, numbers))}]")
        if result["more"]:
            print(
                f"[the video continues: use a frame_interval of more than {frame_interval} to see more of it]"
            )
        _print_answer("video", [frame["path"] for frame in result["frames"]], task)


def _print_answer(modality: str, files: list[str], task: str, model: str | None = None) -> None:
    try:
        print(host.ask_model(modality, files, task, model))
    except RuntimeError as error:
        raise SkillError(str(error)) from None
