"""Skills in a real Python session that ask a real endpoint: the whole way there and back."""

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from demo.model import Endpoint, Turn
from resolver.events import Usage
from resolver.llm.litellm import LitellmModel
from resolver.sandbox.senses import Seeing, Senses
from runtime.actions import RunPython
from runtime.local import LocalSandboxes
from runtime.observations import RanPython
from runtime.sandbox import Sandbox
from tests.runtime import papers

SEEN = "A grey field with a red frame."


@pytest.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    async with Endpoint([Turn(SEEN)]) as endpoint:
        yield endpoint


@pytest.fixture
async def sandbox(tmp_path: Path, endpoint: Endpoint) -> AsyncIterator[Sandbox]:
    async def consulted(usage: Usage) -> None:
        assert usage.model == "openai/recorded"

    model = LitellmModel(
        "openai/recorded", base_url=endpoint.base_url, api_key=SecretStr("sk-x"), timeout=20, sees=True
    )
    senses = Senses(model=model, hearing=None, models=(), consulted=consulted, over=lambda: None)
    async with LocalSandboxes(tmp_path, os.environ).open("cells") as local:
        papers.png(Path(local.root) / "shot.png", 40, 30)
        papers.pdf(Path(local.root) / "report.pdf", "The pump stops at forty bars.")
        papers.video(Path(local.root) / "clip.mp4", 70)
        yield Seeing(local, senses)


async def cell(sandbox: Sandbox, code: str) -> str:
    ran = await sandbox.act(RunPython(code=code, timeout=60))
    assert isinstance(ran, RanPython), ran
    return ran.output


def shown(request: dict[str, Any]) -> tuple[str, list[bytes]]:
    """The task, and the pictures that came with it."""
    _, user = request["messages"]
    text, *pictures = user["content"]
    urls = [part["image_url"]["url"] for part in pictures]
    return text["text"], [base64.b64decode(url.partition("base64,")[2]) for url in urls]


async def test_a_picture_and_a_pdf_of_an_issue_become_text_for_the_agent(
    sandbox: Sandbox, endpoint: Endpoint
) -> None:
    code = "parse_image('shot.png', task='What does it say?')\nparse_pdf('report.pdf')"
    assert await cell(sandbox, code) == f"{SEEN}\n## Page 1 of 1\n\nThe pump stops at forty bars.\n\n"
    (request,) = endpoint.requests
    assert shown(request) == ("What does it say?", [(Path(sandbox.root) / "shot.png").read_bytes()])


async def test_each_thirtieth_frame_of_a_video_is_shown(sandbox: Sandbox, endpoint: Endpoint) -> None:
    told = await cell(sandbox, "parse_video('clip.mp4')")
    assert told == f"[shown to the model: the frames 0, 30, 60]\n{SEEN}\n"
    (request,) = endpoint.requests
    task, frames = shown(request)
    assert task == "Describe this image as detail as possible."
    assert [frame[:3] for frame in frames] == [b"\xff\xd8\xff"] * 3
    assert len(set(frames)) == 3
    told = await cell(sandbox, "parse_video('clip.mp4', 'What moves?', frame_interval=4)")
    assert told.startswith("[shown to the model: the frames 0, 4, 8, ")
    assert "[the video goes on: a frame_interval of more than 4 reaches further]" in told
    task, frames = shown(endpoint.requests[-1])
    assert (task, len(frames)) == ("What moves?", 16)


async def test_what_cannot_be_looked_at_or_heard_is_told_in_the_cell(sandbox: Sandbox) -> None:
    told = await cell(
        sandbox, "parse_image('absent.png'); parse_image('report.pdf'); parse_video('report.pdf')"
    )
    assert "[parse_image: absent.png does not exist" in told
    assert "report.pdf is no picture that is known (png, jpg, gif, webp)]" in told
    assert "[parse_video: it cannot be read: " in told
    told = await cell(sandbox, "parse_audio('shot.png'); parse_video('clip.mp4', frame_interval=0)")
    assert "[parse_audio: no model that listens is set up" in told
    assert "[parse_video: frame_interval must be at least 1, not 0]" in told


async def test_every_skill_is_at_hand_from_the_first_cell(sandbox: Sandbox) -> None:
    code = "import agentskills\nprint([name for name in agentskills.__all__ if globals()[name].__doc__])"
    told = await cell(sandbox, code)
    assert told.count("'") == 2 * 16
