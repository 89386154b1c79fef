"""Eyes and ears for what runs in a sandbox: a cell that wants a file looked at gets a model's answer, and goes on.

The model is asked by the host, with the operator's key and within the run's limits. Only files of the sandbox are
shown to it, and only such as are pictures or recordings.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from resolver import prose
from resolver.errors import ModelError
from resolver.events import Ended, Usage
from resolver.llm.model import FromUser, Model, Reply, System
from runtime.actions import Interrupt, Provide, ReadBytes, RunPython, SandboxAction, ViewFile
from runtime.documents.media import HEAD, medium
from runtime.observations import Content, Failed, Observation, Picture, Viewed, Wanted
from runtime.sandbox import Around, Sandbox
from runtime.text import clip

PICTURE = 4 << 20  # bytes of one picture
PICTURES = 16 << 20  # bytes of all frames of a video
RECORDING = 25 << 20  # bytes. Source: platform.openai.com/docs/guides/speech-to-text
ASKS = 8  # of one cell
REFUSALS = 8  # of one cell, until it is interrupted: it does not listen
SECONDS = 300  # for one answer
TASK = "Describe this picture: every word in it, what is where, and what seems to be wrong."


class Hearing(Protocol):
    """Writes speech down."""

    async def hear(self, recording: bytes, file: str, model: str) -> Reply:
        """What is said. `file`: its name, whose suffix tells its format. Raises ModelError."""


class Unanswered(Exception):
    """Why a cell gets no answer; it is told so."""


@dataclass(frozen=True)
class Senses:
    """Who looks and listens, and who pays."""

    model: Model
    hearing: Hearing | None
    """None: nobody listens."""
    models: tuple[str, ...]
    """Names of the models that a cell may ask to listen."""
    consulted: Callable[[Usage], Awaitable[object]]
    """Hears what each answer has cost."""
    over: Callable[[], Ended | None]
    """Why the run may ask no more, if there is a reason."""

    async def answer(self, wanted: Wanted, sandbox: Sandbox) -> str:
        """Raises Unanswered."""
        if ended := self.over():
            raise Unanswered(ended.detail)
        try:
            async with asyncio.timeout(SECONDS):
                reply = await self._reply(wanted, sandbox)
        except TimeoutError as exc:
            raise Unanswered(f"the model gave no answer within {SECONDS} s") from exc
        except ModelError as exc:
            if exc.usage is not None:
                await self.consulted(exc.usage)
            raise Unanswered(str(exc)) from exc
        await self.consulted(reply.usage)
        if not reply.text.strip():
            raise Unanswered("the model answered nothing")
        return clip(reply.text)

    async def _reply(self, wanted: Wanted, sandbox: Sandbox) -> Reply:
        if wanted.sense == "audio":
            return await self._listen(wanted, sandbox)
        if not self.model.sees:
            raise Unanswered(f"{self.model.name}, the model of this run, does not see pictures")
        pictures: list[Picture] = []
        for path in wanted.files:
            left = PICTURES - sum(len(picture.data) for picture in pictures)
            pictures.append(await _picture(sandbox, path, min(PICTURE, left)))
        if not pictures:
            raise Unanswered("there is no picture to look at")
        system = prose.senses(frames=len(pictures) if wanted.sense == "video" else 0)
        shown = FromUser(text=wanted.task or TASK, pictures=tuple(pictures))
        return await self.model.reply([System(text=system), shown], [])

    async def _listen(self, wanted: Wanted, sandbox: Sandbox) -> Reply:
        if self.hearing is None or not self.models:
            raise Unanswered("no model that listens is set up (the operator's setting `hearing`)")
        model = wanted.model or self.models[0]
        if model not in self.models:
            raise Unanswered(f"the operator allows no model {model!r} here, only: {', '.join(self.models)}")
        if len(wanted.files) != 1:
            raise Unanswered("one recording at a time")
        data = await _content(sandbox, wanted.files[0], RECORDING, "recording")
        found = medium(data[:HEAD])
        if found is None or found.kind == "image":
            raise Unanswered(
                f"{wanted.files[0]} is no recording that is known (mp3, wav, m4a, ogg, flac, webm)"
            )
        return await self.hearing.hear(data, PurePosixPath(wanted.files[0]).name, model)


class Seeing(Around):
    """A sandbox whose cells may ask a model to look and to listen, and whose pictures are described when viewed."""

    def __init__(self, sandbox: Sandbox, senses: Senses) -> None:
        super().__init__(sandbox)
        self._senses = senses

    async def act(self, action: SandboxAction) -> Observation:
        begun = time.monotonic()
        observation = await self._sandbox.act(action)
        if isinstance(action, ViewFile) and isinstance(observation, Viewed):
            return await self._described(action, observation)
        if not isinstance(action, RunPython):
            return observation
        left = action.timeout - (time.monotonic() - begun)
        asked = refused = 0
        while isinstance(observation, Wanted):
            try:
                if asked == ASKS:
                    raise Unanswered(f"a cell may ask {ASKS} times: ask on in the next one")
                asked += 1
                answer = Provide(
                    text=await self._senses.answer(observation, self._sandbox), timeout=_whole(left)
                )
            except Unanswered as reason:
                refused += 1
                answer = Provide(text=str(reason), failed=True, timeout=_whole(left))
            if refused > REFUSALS or left <= 0:
                await self._sandbox.act(Interrupt())
                message = f"the cell was interrupted: it used up its {action.timeout} s or asked on and on"
                return Failed(reason="refused", message=message)
            begun = time.monotonic()
            observation = await self._sandbox.act(answer)
            left -= time.monotonic() - begun
        return observation

    async def _described(self, action: ViewFile, viewed: Viewed) -> Viewed:
        """The same, with what a model sees, where the file is a picture and the model sees."""
        if not self._senses.model.sees:
            return viewed
        head = await self._sandbox.act(ReadBytes(path=action.path, limit=HEAD))
        found = medium(head.content) if isinstance(head, Content) else None
        if found is None or found.kind != "image":
            return viewed
        try:
            told = await self._senses.answer(Wanted(sense="image", files=(action.path,)), self._sandbox)
        except Unanswered as reason:
            told = f"[not described: {reason}]"
        return Viewed(text=f"{viewed.text}\n\n{told}")


async def _picture(sandbox: Sandbox, path: str, most: int) -> Picture:
    data = await _content(sandbox, path, most, "picture")
    found = medium(data[:HEAD])
    match found.type if found else None:
        case "image/png" | "image/jpeg" | "image/gif" | "image/webp" as media:
            return Picture(media=media, data=data)
        case _:
            raise Unanswered(f"{path} is no picture that is known (png, jpg, gif, webp)")


async def _content(sandbox: Sandbox, path: str, most: int, what: str) -> bytes:
    """All of a file in the sandbox. Raises Unanswered where it has more than `most` bytes."""
    data = bytearray()
    while True:
        part = await sandbox.act(ReadBytes(path=path, offset=len(data)))
        if not isinstance(part, Content):
            said = part.message if isinstance(part, Failed) else "unexpected answer"
            raise Unanswered(f"the {what} cannot be read: {said}")
        data += part.content
        if max(len(data), part.size) > most:
            size = max(len(data), part.size)
            raise Unanswered(f"the {what} has {size:,} bytes, more than {most:,}: make it smaller first")
        if not part.content or len(data) >= part.size:
            return bytes(data)


def _whole(seconds: float) -> int:
    return max(1, round(seconds))
