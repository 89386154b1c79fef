"""Lets code in the sandbox ask a model about images, audio and video. A cell of the Python session waits for
the answer and continues with it.

The host calls the model with the operator's key and within the run's limits. Only image and audio files
inside the sandbox are sent. A video is sent as a series of images.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, Protocol

from patchwright.resolver.errors import ModelError
from patchwright.resolver.events import AgentStopped, ReplyUsage
from patchwright.resolver.llm.model import Model, Reply, SystemMessage, UserMessage
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.runtime.actions import HostReply, Interrupt, ReadBytes, RunPython, SandboxAction, ViewFile
from patchwright.runtime.documents.media_type import (
    HEADER_BYTES,
    MAX_IMAGE_BYTES,
    detect_media,
    load_image,
)
from patchwright.runtime.observations import (
    ActionFailure,
    FileContent,
    HostRequest,
    ImageData,
    Observation,
    TextResult,
)
from patchwright.runtime.output_text import clip
from patchwright.runtime.sandbox import Sandbox, WrapperSandbox

MAX_VIDEO_BYTES = 16 << 20  # bytes of all frames of a video
MAX_RECORDING_BYTES = 25 << 20  # bytes. Source: platform.openai.com/docs/guides/speech-to-text
MAX_REQUESTS = 8  # requests per cell
MAX_REJECTIONS = 8  # rejected requests per cell; after more than that, the cell is interrupted
REPLY_TIMEOUT = 300  # seconds for one reply
DEFAULT_TASK = "Describe this image: every word in it, the layout, and anything that seems wrong."


class Transcriber(Protocol):
    """Transcribes speech."""

    async def transcribe(self, recording: bytes, filename: str, model: str) -> Reply:
        """Returns the transcript. The suffix of `filename` specifies the audio format. Raises ModelError."""


class RequestRejected(Exception):
    """A request was rejected. The message of this error is sent to the cell."""


@dataclass(frozen=True)
class MultimodalModels:
    """The models that answer requests from the sandbox, and callbacks for the run's budget."""

    model: Model
    transcriber: Transcriber | None
    """Transcribes audio; None if transcription is not available."""
    transcription_models: tuple[str, ...]
    """Names of the transcription models that a cell may request."""
    record_usage: Callable[[ReplyUsage], Awaitable[object]]
    """Records the usage of each reply."""
    check_limits: Callable[[], AgentStopped | None]
    """Returns the reason why the run must not make further requests. Returns None if it may continue."""
    agent_sees: bool = False
    """True if the agent's own model accepts images, so that it needs no description of a picture."""

    async def answer(self, request: HostRequest, sandbox: Sandbox) -> str:
        """Returns the model's answer. Raises RequestRejected."""
        if stopped := self.check_limits():
            raise RequestRejected(stopped.detail)
        try:
            async with asyncio.timeout(REPLY_TIMEOUT):
                reply = await self._ask_model(request, sandbox)
        except TimeoutError as exc:
            raise RequestRejected(f"the model did not reply within {REPLY_TIMEOUT} s") from exc
        except ModelError as exc:
            if exc.usage is not None:
                await self.record_usage(exc.usage)
            raise RequestRejected(str(exc)) from exc
        await self.record_usage(reply.usage)
        if not reply.text.strip():
            raise RequestRejected("the model returned an empty reply")
        return clip(reply.text)

    async def _ask_model(self, request: HostRequest, sandbox: Sandbox) -> Reply:
        if request.modality == "audio":
            return await self._transcribe(request, sandbox)
        if not self.model.supports_vision:
            raise RequestRejected(f"{self.model.name}, the model of this run, has no vision")
        images: list[ImageData] = []
        for path in request.files:
            remaining = MAX_VIDEO_BYTES - sum(len(image.data) for image in images)
            images.append(await _read_image(sandbox, path, min(MAX_IMAGE_BYTES, remaining)))
        if not images:
            raise RequestRejected("no image was given")
        frames = len(images) if request.modality == "video" else 0
        system = render_prompt("multimodal_system.md.j2", frames=frames)
        user_message = UserMessage(text=request.task or DEFAULT_TASK, images=tuple(images))
        return await self.model.reply([SystemMessage(text=system), user_message], [])

    async def _transcribe(self, request: HostRequest, sandbox: Sandbox) -> Reply:
        if self.transcriber is None or not self.transcription_models:
            raise RequestRejected(
                "no transcription model is configured (the operator's setting `transcription_models`)"
            )
        model = request.model or self.transcription_models[0]
        if model not in self.transcription_models:
            raise RequestRejected(
                f"the operator does not allow the model {model!r}; allowed: {', '.join(self.transcription_models)}"
            )
        if len(request.files) != 1:
            raise RequestRejected("pass exactly one recording")
        data = await _read_file(sandbox, request.files[0], MAX_RECORDING_BYTES, "recording")
        media_info = detect_media(data[:HEADER_BYTES])
        if media_info is None or media_info.kind == "image":
            raise RequestRejected(
                f"{request.files[0]} is not a supported recording (mp3, wav, m4a, ogg, flac, webm)"
            )
        return await self.transcriber.transcribe(data, PurePosixPath(request.files[0]).name, model)


class MultimodalSandbox(WrapperSandbox):
    """A sandbox whose cells can ask a model about images, audio and video.

    When the agent views a picture, the result contains the picture if the agent's model sees, or else a description by
    another model. When the agent views a recording, the result contains its transcript.
    """

    def __init__(self, sandbox: Sandbox, models: MultimodalModels) -> None:
        super().__init__(sandbox)
        self._models = models

    async def act(self, action: SandboxAction) -> Observation:
        started_at = time.monotonic()
        observation = await self._sandbox.act(action)
        if isinstance(action, ViewFile) and isinstance(observation, TextResult):
            return await self._add_media(action, observation)
        if not isinstance(action, RunPython):
            return observation
        remaining = action.timeout - (time.monotonic() - started_at)
        request_count = rejection_count = 0
        while isinstance(observation, HostRequest):
            try:
                if request_count == MAX_REQUESTS:
                    raise RequestRejected(
                        f"a cell may make at most {MAX_REQUESTS} requests; continue in the next cell"
                    )
                request_count += 1
                answer = HostReply(
                    text=await self._models.answer(observation, self._sandbox),
                    timeout=_round_seconds(remaining),
                )
            except RequestRejected as reason:
                rejection_count += 1
                answer = HostReply(text=str(reason), failed=True, timeout=_round_seconds(remaining))
            if rejection_count > MAX_REJECTIONS or remaining <= 0:
                await self._sandbox.act(Interrupt())
                message = (
                    f"the cell was interrupted: it reached its timeout of {action.timeout} s "
                    "or ignored rejections"
                )
                return ActionFailure(reason="refused", message=message)
            started_at = time.monotonic()
            observation = await self._sandbox.act(answer)
            remaining -= time.monotonic() - started_at
        return observation

    async def _add_media(self, action: ViewFile, viewed: TextResult) -> TextResult:
        """Adds what the viewed file shows or says, if it is a picture or a recording and a model can read it."""
        head = await self._sandbox.act(ReadBytes(path=action.path, limit=HEADER_BYTES))
        media_info = detect_media(head.content) if isinstance(head, FileContent) else None
        match media_info.kind if media_info else None:
            case "image" if self._models.agent_sees or self._models.model.supports_vision:
                modality: Literal["image", "audio"] = "image"
            case "audio" if self._models.transcriber is not None and self._models.transcription_models:
                modality = "audio"
            case _:
                return viewed.model_copy(update={"images": ()})
        try:
            if modality == "image" and self._models.agent_sees:
                data = await _read_file(self._sandbox, action.path, MAX_IMAGE_BYTES, "image")
                if (image := load_image(data)) is not None:
                    return viewed.model_copy(update={"images": (image,)})
                raise RequestRejected("the picture is damaged or too large")
            request = HostRequest(modality=modality, files=(action.path,))
            text = await self._models.answer(request, self._sandbox)
        except RequestRejected as reason:
            text = f"[no {'description' if modality == 'image' else 'transcript'}: {reason}]"
        return TextResult(text=f"{viewed.text}\n\n{text}")


async def _read_image(sandbox: Sandbox, path: str, max_bytes: int) -> ImageData:
    data = await _read_file(sandbox, path, max_bytes, "image")
    media_info = detect_media(data[:HEADER_BYTES])
    match media_info.media_type if media_info else None:
        case "image/png" | "image/jpeg" | "image/gif" | "image/webp" as media_type:
            return ImageData(media_type=media_type, data=data)
        case _:
            raise RequestRejected(f"{path} is not a supported image (png, jpg, gif, webp)")


async def _read_file(sandbox: Sandbox, path: str, max_bytes: int, label: str) -> bytes:
    """Returns the content of a file in the sandbox. Raises RequestRejected if it exceeds `max_bytes`."""
    data = bytearray()
    while True:
        chunk = await sandbox.act(ReadBytes(path=path, offset=len(data)))
        if not isinstance(chunk, FileContent):
            reason = chunk.message if isinstance(chunk, ActionFailure) else "unexpected result"
            raise RequestRejected(f"the {label} cannot be read: {reason}")
        data += chunk.content
        if max(len(data), chunk.size) > max_bytes:
            size = max(len(data), chunk.size)
            raise RequestRejected(
                f"the {label} has {size:,} bytes, more than the limit of {max_bytes:,}: make it smaller first"
            )
        if not chunk.content or len(data) >= chunk.size:
            return bytes(data)


def _round_seconds(seconds: float) -> int:
    return max(1, round(seconds))
