"""Skills in a real Python session that send requests to a real endpoint."""

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.litellm import LitellmModel
from patchwright.resolver.llm.model import ProviderConnection
from patchwright.resolver.sandbox.multimodal import MultimodalModels, MultimodalSandbox
from patchwright.runtime.actions import RunPython
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import CellResult
from patchwright.runtime.sandbox import Sandbox
from tests.resolver.sandbox.test_multimodal import TranscribingEndpoint, multimodal_models, transcriber_for
from tests.resolver.scripted_model import ScriptedModel
from tests.runtime import sample_documents

SEEN = "A grey field with a red frame."


@pytest.fixture
async def endpoint() -> AsyncIterator[RecordedModel]:
    async with RecordedModel([RecordedTurn(SEEN)]) as endpoint:
        yield endpoint


@pytest.fixture
async def sandbox(tmp_path: Path, endpoint: RecordedModel) -> AsyncIterator[Sandbox]:
    async def consulted(usage: ReplyUsage) -> None:
        assert usage.model == "openai/recorded"

    model = LitellmModel(
        "openai/recorded",
        ProviderConnection(base_url=endpoint.base_url, api_key=SecretStr("sk-x"), timeout=20),
        supports_vision=True,
    )
    senses = MultimodalModels(
        model=model,
        transcriber=None,
        transcription_models=(),
        record_usage=consulted,
        check_limits=lambda: None,
    )
    async with LocalSandboxes(tmp_path, os.environ).open("cells") as local:
        sample_documents.png(Path(local.root) / "shot.png", 40, 30)
        sample_documents.pdf(Path(local.root) / "report.pdf", "The pump stops at forty bars.")
        sample_documents.video(Path(local.root) / "clip.mp4", 70)
        yield MultimodalSandbox(local, senses)


async def cell(sandbox: Sandbox, code: str) -> str:
    ran = await sandbox.act(RunPython(code=code, timeout=60))
    assert isinstance(ran, CellResult), ran
    return ran.output


def sent_images(request: dict[str, Any]) -> tuple[str, list[bytes]]:
    """Returns the task and the images of a request."""
    _, user = request["messages"]
    text, *pictures = user["content"]
    urls = [part["image_url"]["url"] for part in pictures]
    return text["text"], [base64.b64decode(url.partition("base64,")[2]) for url in urls]


@pytest.mark.slow
async def test_an_image_and_a_pdf_of_an_issue_become_text(sandbox: Sandbox, endpoint: RecordedModel) -> None:
    code = "parse_image('shot.png', task='What does it say?')\nparse_pdf('report.pdf')"
    assert await cell(sandbox, code) == f"{SEEN}\n## Page 1 of 1\n\nThe pump stops at forty bars.\n\n"
    (request,) = endpoint.requests
    assert sent_images(request) == ("What does it say?", [(Path(sandbox.root) / "shot.png").read_bytes()])


@pytest.mark.slow
async def test_every_thirtieth_frame_of_a_video_is_sent(sandbox: Sandbox, endpoint: RecordedModel) -> None:
    output = await cell(sandbox, "parse_video('clip.mp4')")
    assert output == f"[frames shown to the model: 0, 30, 60]\n{SEEN}\n"
    (request,) = endpoint.requests
    task, frames = sent_images(request)
    assert task == "Describe this video in detail."
    assert [frame[:3] for frame in frames] == [b"\xff\xd8\xff"] * 3
    assert len(set(frames)) == 3
    output = await cell(sandbox, "parse_video('clip.mp4', 'What moves?', frame_interval=4)")
    assert output.startswith("[frames shown to the model: 0, 4, 8, ")
    assert "[the video continues: use a frame_interval of more than 4 to see more of it]" in output
    task, frames = sent_images(endpoint.requests[-1])
    assert (task, len(frames)) == ("What moves?", 16)


@pytest.mark.slow
async def test_a_recording_is_transcribed_by_whisper_1_by_default(tmp_path: Path) -> None:
    async with (
        TranscribingEndpoint([]) as endpoint,
        LocalSandboxes(tmp_path, os.environ).open("cells") as local,
    ):
        recording = sample_documents.wav(Path(local.root) / "said.wav").read_bytes()
        models = multimodal_models(
            ScriptedModel([]),
            transcriber=transcriber_for(endpoint),
            transcription_models=("dearest/of-all", "whisper-1"),
        )
        assert await cell(MultimodalSandbox(local, models), "parse_audio('said.wav')") == "The pump stops.\n"
        assert (endpoint.field("model"), endpoint.field("file")) == (b"whisper-1", recording)


@pytest.mark.slow
async def test_unsupported_media_are_reported_in_the_cell(sandbox: Sandbox) -> None:
    output = await cell(
        sandbox, "parse_image('absent.png'); parse_image('report.pdf'); parse_video('report.pdf')"
    )
    assert "[parse_image: absent.png does not exist" in output
    assert "report.pdf is not a supported image (png, jpg, gif, webp)]" in output
    assert "[parse_video: the file cannot be read: " in output
    output = await cell(sandbox, "parse_audio('shot.png'); parse_video('clip.mp4', frame_interval=0)")
    assert "[parse_audio: no transcription model is configured" in output
    assert "[parse_video: frame_interval must be at least 1, not 0]" in output


async def test_every_skill_is_available_in_the_first_cell(sandbox: Sandbox) -> None:
    code = "print([name for name in agentskills.__all__ if globals()[name].__doc__])"
    output = await cell(sandbox, code)
    assert output.count("'") == 2 * 16


async def test_help_explains_every_skill(sandbox: Sandbox) -> None:
    output = await cell(sandbox, "help(agentskills)")
    assert "parse_pdf(file_path: 'str') -> 'None'\n        Print the text of a PDF, page by page." in output
    assert "parse_video(" in output and "search_dir(" in output
