"""Requests of a cell about images, video and audio: what reaches the endpoint, and what the cell gets."""

import base64
import os
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from patchwright.demo.recorded_model import ModelFault, RecordedModel, RecordedTurn, server_error
from patchwright.resolver.agent.messages import get_images
from patchwright.resolver.errors import ModelAccessDenied
from patchwright.resolver.events import AgentStopped, ReplyUsage
from patchwright.resolver.llm.litellm import LitellmModel
from patchwright.resolver.llm.model import Model, ProviderConnection, Reply
from patchwright.resolver.llm.transcription import LitellmTranscriber
from patchwright.resolver.sandbox.multimodal import (
    MAX_IMAGE_BYTES,
    MAX_RECORDING_BYTES,
    MAX_REJECTIONS,
    MAX_REQUESTS,
    MultimodalModels,
    MultimodalSandbox,
)
from patchwright.runtime.actions import HostReply, Interrupt, RunPython, SandboxAction, ViewFile
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import (
    Acknowledgment,
    ActionFailure,
    CellResult,
    HostRequest,
    ImageData,
    Observation,
    TextResult,
)
from patchwright.runtime.sandbox import Sandbox
from tests.resolver.scripted_model import ScriptedModel
from tests.runtime import sample_documents

KEY = "sk-test-0123456789"
TASK = "Describe this image in detail."


class RequestingSandbox:
    """A sandbox with real files whose cells make these requests one after the other and print the answers."""

    def __init__(self, sandbox: Sandbox, *wanted: HostRequest) -> None:
        self._sandbox = sandbox
        self._wanted = list(wanted)
        self.provided: list[HostReply] = []
        self.interrupted = False

    @property
    def root(self) -> str:
        return self._sandbox.root

    @property
    def scratch(self) -> str:
        return self._sandbox.scratch

    async def act(self, action: SandboxAction) -> Observation:
        match action:
            case RunPython():
                return self._next()
            case HostReply():
                self.provided.append(action)
                return self._next()
            case Interrupt():
                self.interrupted = True
                return Acknowledgment(text="interrupted")
        return await self._sandbox.act(action)

    def _next(self) -> Observation:
        if self._wanted:
            return self._wanted.pop(0)
        output = "".join(f"{'!' if each.failed else ''}{each.text}\n" for each in self.provided)
        return CellResult(output=output, ok=True, seconds=0.1)


class TranscribingEndpoint(RecordedModel):
    """An endpoint that also transcribes recordings; `received_body` is the last request body."""

    received_body: bytes = b""
    key: str = ""

    async def _respond(self, method: str, path: str, key: str, body: bytes) -> ModelFault:
        if (method, path) != ("POST", "/v1/audio/transcriptions"):
            return await super()._respond(method, path, key, body)
        self.received_body, self.key = body, key
        return ModelFault(body='{"text": "The pump stops."}')

    def field(self, name: str) -> bytes:
        """Returns a field of the form that the endpoint received."""
        mark = self.received_body.partition(b"\r\n")[0]
        part = next(part for part in self.received_body.split(mark) if f'name="{name}"'.encode() in part)
        return part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(tmp_path, os.environ).open("senses") as sandbox:
        sample_documents.png(Path(sandbox.root) / "shot.png", 40, 30)
        sample_documents.wav(Path(sandbox.root) / "said.wav")
        yield sandbox


@pytest.fixture
async def endpoint() -> AsyncIterator[TranscribingEndpoint]:
    async with TranscribingEndpoint([RecordedTurn("A grey field.")], key=KEY) as endpoint:
        yield endpoint


def vision_model(endpoint: RecordedModel) -> LitellmModel:
    return LitellmModel(
        "openai/recorded",
        ProviderConnection(base_url=endpoint.base_url, api_key=SecretStr(KEY), timeout=20),
        supports_vision=True,
    )


def transcriber_for(endpoint: RecordedModel) -> LitellmTranscriber:
    return LitellmTranscriber(
        "openai/recorded", ProviderConnection(base_url=endpoint.base_url, api_key=SecretStr(KEY), timeout=20)
    )


def multimodal_models(model: Model, costs: list[ReplyUsage] | None = None, **others: Any) -> MultimodalModels:
    async def consulted(usage: ReplyUsage) -> None:
        if costs is not None:
            costs.append(usage)

    given = {
        "transcriber": None,
        "transcription_models": ("whisper-1",),
        "check_limits": lambda: None,
        **others,
    }
    return MultimodalModels(model=model, record_usage=consulted, **given)


async def run(wanting: RequestingSandbox, senses: MultimodalModels, timeout: int = 60) -> Observation:
    return await MultimodalSandbox(wanting, senses).act(
        RunPython(code="parse_image('shot.png')", timeout=timeout)
    )


async def run_and_print(wanting: RequestingSandbox, senses: MultimodalModels) -> str:
    ran = await run(wanting, senses)
    assert isinstance(ran, CellResult), ran
    return ran.output


def make_request_reply(text: str) -> Reply:
    return Reply(text=text, tool_calls=(), usage=ReplyUsage(model="scripted", usd=Decimal("0.01")))


def picture(sandbox: Sandbox, name: str = "shot.png") -> HostRequest:
    return HostRequest(modality="image", files=(f"{sandbox.root}/{name}",), task=TASK)


def sent_images(message: dict[str, Any]) -> list[bytes]:
    """Returns the images of a message that the endpoint received."""
    urls = [part["image_url"]["url"] for part in message["content"] if part["type"] == "image_url"]
    return [base64.b64decode(url.partition("base64,")[2]) for url in urls]


async def test_the_model_gets_image_and_task_and_the_cell_gets_the_answer(
    files: Sandbox, endpoint: TranscribingEndpoint
) -> None:
    costs: list[ReplyUsage] = []
    assert (
        await run_and_print(
            RequestingSandbox(files, picture(files)), multimodal_models(vision_model(endpoint), costs)
        )
        == "A grey field.\n"
    )
    (request,) = endpoint.requests
    system, user = request["messages"]
    assert "never guess" in system["content"]
    assert user["content"][0] == {"type": "text", "text": TASK}
    assert sent_images(user) == [(Path(files.root) / "shot.png").read_bytes()]
    assert "tools" not in request
    assert [cost.model for cost in costs] == ["openai/recorded"]
    assert costs[0].completion_tokens > 0


async def test_video_frames_are_sent_in_order_in_one_request(
    files: Sandbox, endpoint: TranscribingEndpoint
) -> None:
    names = [sample_documents.png(Path(files.scratch) / f"frame-{n}.png", 10 + n, 10) for n in range(3)]
    wanted = HostRequest(modality="video", files=tuple(map(str, names)), task="What moves?")
    await run_and_print(RequestingSandbox(files, wanted), multimodal_models(vision_model(endpoint)))
    (request,) = endpoint.requests
    assert sent_images(request["messages"][1]) == [name.read_bytes() for name in names]
    assert "3 frames of one video" in request["messages"][0]["content"]


@pytest.mark.slow
async def test_a_recording_is_sent_unchanged_to_the_named_model(
    files: Sandbox, endpoint: TranscribingEndpoint
) -> None:
    costs: list[ReplyUsage] = []
    wanted = HostRequest(modality="audio", files=(f"{files.root}/said.wav",), model="whisper-1")
    who = multimodal_models(vision_model(endpoint), costs, transcriber=transcriber_for(endpoint))
    assert await run_and_print(RequestingSandbox(files, wanted), who) == "The pump stops.\n"
    assert endpoint.key == KEY
    assert endpoint.field("model") == b"whisper-1"
    assert endpoint.field("file") == (Path(files.root) / "said.wav").read_bytes()
    assert [cost.model for cost in costs] == ["openai/whisper-1"]


async def test_the_key_of_one_provider_is_not_sent_to_another(
    files: Sandbox, endpoint: TranscribingEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another-provider")
    monkeypatch.setenv("OPENAI_API_BASE", endpoint.base_url)
    hearing = LitellmTranscriber(
        "anthropic/claude-sonnet-4-5", ProviderConnection(api_key=SecretStr(KEY), timeout=20)
    )
    reply = await hearing.transcribe((Path(files.root) / "said.wav").read_bytes(), "said.wav", "whisper-1")
    assert reply.text == "The pump stops."
    assert endpoint.key == "sk-of-another-provider"


async def test_a_cell_can_use_only_allowed_transcription_models(
    files: Sandbox, endpoint: TranscribingEndpoint
) -> None:
    wanted = HostRequest(modality="audio", files=(f"{files.root}/said.wav",), model="dearest/of-all")
    output = await run_and_print(
        RequestingSandbox(files, wanted),
        multimodal_models(vision_model(endpoint), transcriber=transcriber_for(endpoint)),
    )
    assert output == "!the operator does not allow the model 'dearest/of-all'; allowed: whisper-1\n"
    assert endpoint.received_body == b""


@pytest.mark.slow
async def test_a_recording_over_the_limit_and_another_file_are_refused(
    files: Sandbox, endpoint: TranscribingEndpoint
) -> None:
    recording = (Path(files.root) / "said.wav").read_bytes()
    models = multimodal_models(ScriptedModel([]), transcriber=transcriber_for(endpoint))
    for size, refusal in ((MAX_RECORDING_BYTES, None), (MAX_RECORDING_BYTES + 1, "more than the limit")):
        (Path(files.root) / "long.wav").write_bytes(recording.ljust(size, b"\0"))
        wanted = HostRequest(modality="audio", files=(f"{files.root}/long.wav",))
        output = await run_and_print(RequestingSandbox(files, wanted), models)
        assert refusal in output if refusal else output == "The pump stops.\n"
    picture = HostRequest(modality="audio", files=(f"{files.root}/shot.png",))
    output = await run_and_print(RequestingSandbox(files, picture), models)
    assert "shot.png is not a supported recording (mp3, wav, m4a, ogg, flac, webm)" in output


async def test_a_provider_failure_is_reported_to_the_cell(
    files: Sandbox, endpoint: TranscribingEndpoint
) -> None:
    endpoint.add_faults(server_error())
    output = await run_and_print(
        RequestingSandbox(files, picture(files)), multimodal_models(vision_model(endpoint))
    )
    assert output.startswith("!The model openai/recorded failed (500): ")
    refused = ScriptedModel([ModelAccessDenied("The key is wrong.")], sees=True)
    assert (
        await run_and_print(RequestingSandbox(files, picture(files)), multimodal_models(refused))
        == "!The key is wrong.\n"
    )


async def test_a_model_without_vision_or_transcription_is_not_asked(files: Sandbox) -> None:
    blind = ScriptedModel([])
    output = await run_and_print(RequestingSandbox(files, picture(files)), multimodal_models(blind))
    assert output == "!scripted, the model of this run, has no vision\n"
    wanted = HostRequest(modality="audio", files=(f"{files.root}/said.wav",), model="whisper-1")
    assert (await run_and_print(RequestingSandbox(files, wanted), multimodal_models(blind))).startswith(
        "!no transcription model is configured"
    )


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("{root}/absent.png", "!the image cannot be read: "),
        ("/etc/passwd", "!the image cannot be read: /etc/passwd is outside of the work tree"),
        ("{root}/link.png", "!the image cannot be read: "),
        ("{root}/text.png", "!{root}/text.png is not a supported image (png, jpg, gif, webp)\n"),
        ("{root}/said.wav", "!{root}/said.wav is not a supported image (png, jpg, gif, webp)\n"),
        (
            "{root}/huge.png",
            f"!the image has {MAX_IMAGE_BYTES + 1:,} bytes, "
            f"more than the limit of {MAX_IMAGE_BYTES:,}: make it smaller",
        ),
    ],
)
async def test_only_small_images_inside_the_sandbox_are_sent(path: str, text: str, files: Sandbox) -> None:
    root = Path(files.root)
    (root / "link.png").symlink_to("/etc/passwd")
    (root / "text.png").write_text("GET / HTTP/1.1")
    (root / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n".ljust(MAX_IMAGE_BYTES + 1, b"\0"))
    model = ScriptedModel([], sees=True)
    wanted = HostRequest(modality="image", files=(path.format(root=root),))
    assert (await run_and_print(RequestingSandbox(files, wanted), multimodal_models(model))).startswith(
        text.format(root=root)
    )
    assert model.requests == []


async def test_a_cell_can_make_a_limited_number_of_requests(files: Sandbox) -> None:
    model = ScriptedModel([make_request_reply(f"Look {n}") for n in range(MAX_REQUESTS)], sees=True)
    output = await run_and_print(
        RequestingSandbox(files, *[picture(files)] * (MAX_REQUESTS + 1)), multimodal_models(model)
    )
    assert output.splitlines() == [
        *(f"Look {n}" for n in range(MAX_REQUESTS)),
        f"!a cell may make at most {MAX_REQUESTS} requests; continue in the next cell",
    ]


async def test_a_cell_that_ignores_rejections_is_interrupted(files: Sandbox) -> None:
    model = ScriptedModel([make_request_reply("Look")] * MAX_REQUESTS, sees=True)
    wanting = RequestingSandbox(files, *[picture(files)] * 1000)
    ran = await run(wanting, multimodal_models(model))
    assert isinstance(ran, ActionFailure)
    assert "ignored rejections" in ran.message
    assert wanting.interrupted
    assert len(wanting.provided) == MAX_REQUESTS + MAX_REJECTIONS


async def test_a_run_at_its_limit_makes_no_requests(files: Sandbox) -> None:
    model = ScriptedModel([], sees=True)
    spent = AgentStopped(reason="limit", detail="The budget of $2 is spent.")
    output = await run_and_print(
        RequestingSandbox(files, picture(files)), multimodal_models(model, check_limits=lambda: spent)
    )
    assert output == "!The budget of $2 is spent.\n"


async def test_a_viewed_image_is_described(files: Sandbox) -> None:
    costs: list[ReplyUsage] = []
    model = ScriptedModel([make_request_reply("A grey field.")], sees=True)
    seeing = MultimodalSandbox(files, multimodal_models(model, costs))
    viewed = await seeing.act(ViewFile(path="shot.png"))
    assert isinstance(viewed, TextResult)
    assert viewed.text.startswith("[shot.png: image/png, 40 x 30 pixels, ")
    assert viewed.text.endswith("\n\nA grey field.")
    assert costs == [ReplyUsage(model="scripted", usd=Decimal("0.01"))]
    text = await seeing.act(ViewFile(path="."))
    assert text == await files.act(ViewFile(path="."))


async def test_a_model_that_sees_gets_the_viewed_picture_itself(files: Sandbox) -> None:
    seeing = MultimodalSandbox(files, multimodal_models(ScriptedModel([]), agent_sees=True))
    viewed = await seeing.act(ViewFile(path="shot.png"))
    data = (Path(files.root) / "shot.png").read_bytes()
    assert isinstance(viewed, TextResult)
    assert viewed.images == (ImageData(media_type="image/png", data=data),)
    assert get_images(viewed) == viewed.images


async def test_a_damaged_or_lying_picture_is_never_sent_to_the_model(files: Sandbox) -> None:
    seeing = MultimodalSandbox(files, multimodal_models(ScriptedModel([]), agent_sees=True))
    data = (Path(files.root) / "shot.png").read_bytes()
    (Path(files.root) / "shot.png").write_bytes(data[:-12])
    viewed = await seeing.act(ViewFile(path="shot.png"))
    assert isinstance(viewed, TextResult)
    assert viewed.images == ()
    assert viewed.text.endswith("[no description: the picture is damaged or too large]")
    (Path(files.root) / "shot.png").write_text("text")
    viewed = await seeing.act(ViewFile(path="shot.png"))
    assert isinstance(viewed, TextResult) and viewed.images == ()


@pytest.mark.slow
async def test_a_viewed_recording_is_transcribed_where_a_model_is_set(
    files: Sandbox, endpoint: TranscribingEndpoint
) -> None:
    models = multimodal_models(ScriptedModel([]), transcriber=transcriber_for(endpoint))
    viewed = await MultimodalSandbox(files, models).act(ViewFile(path="said.wav"))
    assert isinstance(viewed, TextResult)
    assert viewed.text.startswith("[said.wav: audio/wav, ")
    assert viewed.text.endswith("\n\nThe pump stops.")
    assert endpoint.field("file") == (Path(files.root) / "said.wav").read_bytes()
    without = MultimodalSandbox(files, multimodal_models(ScriptedModel([]), transcription_models=()))
    assert await without.act(ViewFile(path="said.wav")) == await files.act(ViewFile(path="said.wav"))


async def test_a_viewed_image_without_description_is_still_shown(files: Sandbox) -> None:
    blind = await MultimodalSandbox(files, multimodal_models(ScriptedModel([]))).act(
        ViewFile(path="shot.png")
    )
    assert blind == await files.act(ViewFile(path="shot.png"))
    failing = MultimodalSandbox(
        files, multimodal_models(ScriptedModel([ModelAccessDenied("No credit.")], sees=True))
    )
    viewed = await failing.act(ViewFile(path="shot.png"))
    assert isinstance(viewed, TextResult)
    assert viewed.text.endswith("[no description: No credit.]")
