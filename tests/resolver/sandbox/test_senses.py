"""What a cell asks a model to look at: which bytes and words reach the endpoint, and what the cell is told."""

import base64
import os
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from demo.model import Endpoint, Fault, Turn, server_error
from resolver.errors import ModelRefused
from resolver.events import Ended, Usage
from resolver.llm.hearing import LitellmHearing
from resolver.llm.litellm import LitellmModel
from resolver.llm.model import Model, Reply
from resolver.sandbox.senses import ASKS, PICTURE, REFUSALS, Seeing, Senses
from runtime.actions import Interrupt, Provide, RunPython, SandboxAction, ViewFile
from runtime.local import LocalSandboxes
from runtime.observations import Failed, Noted, Observation, RanPython, Viewed, Wanted
from runtime.sandbox import Sandbox
from tests.resolver.scripted import Scripted
from tests.runtime import papers

KEY = "sk-test-0123456789"
TASK = "Describe this image as detail as possible."


class Wanting:
    """A sandbox with real files whose cells want these things, one after the other, and print what they get."""

    def __init__(self, sandbox: Sandbox, *wanted: Wanted) -> None:
        self._sandbox = sandbox
        self._wanted = list(wanted)
        self.provided: list[Provide] = []
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
            case Provide():
                self.provided.append(action)
                return self._next()
            case Interrupt():
                self.interrupted = True
                return Noted(text="interrupted")
        return await self._sandbox.act(action)

    def _next(self) -> Observation:
        if self._wanted:
            return self._wanted.pop(0)
        output = "".join(f"{'!' if each.failed else ''}{each.text}\n" for each in self.provided)
        return RanPython(output=output, ok=True, seconds=0.1)


class Listening(Endpoint):
    """An endpoint that also writes down recordings; what it was sent stands in `heard`."""

    heard: bytes = b""
    key: str = ""

    async def _answer(self, method: str, path: str, key: str, body: bytes) -> Fault:
        if (method, path) != ("POST", "/v1/audio/transcriptions"):
            return await super()._answer(method, path, key, body)
        self.heard, self.key = body, key
        return Fault(body='{"text": "The pump stops."}')

    def field(self, name: str) -> bytes:
        """A field of the form that it was sent."""
        mark = self.heard.partition(b"\r\n")[0]
        part = next(part for part in self.heard.split(mark) if f'name="{name}"'.encode() in part)
        return part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")


@pytest.fixture
async def files(tmp_path: Path) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(tmp_path, os.environ).open("senses") as sandbox:
        papers.png(Path(sandbox.root) / "shot.png", 40, 30)
        papers.wav(Path(sandbox.root) / "said.wav")
        yield sandbox


@pytest.fixture
async def endpoint() -> AsyncIterator[Listening]:
    async with Listening([Turn("A grey field.")], key=KEY) as endpoint:
        yield endpoint


def eyes(endpoint: Endpoint) -> LitellmModel:
    return LitellmModel(
        "openai/recorded", base_url=endpoint.base_url, api_key=SecretStr(KEY), timeout=20, sees=True
    )


def ears(endpoint: Endpoint) -> LitellmHearing:
    return LitellmHearing("openai/recorded", base_url=endpoint.base_url, api_key=SecretStr(KEY), timeout=20)


def senses(model: Model, costs: list[Usage] | None = None, **others: Any) -> Senses:
    async def consulted(usage: Usage) -> None:
        if costs is not None:
            costs.append(usage)

    given = {"hearing": None, "models": ("whisper-1",), "over": lambda: None, **others}
    return Senses(model=model, consulted=consulted, **given)


async def run(wanting: Wanting, senses: Senses, timeout: int = 60) -> Observation:
    return await Seeing(wanting, senses).act(RunPython(code="parse_image('shot.png')", timeout=timeout))


async def printed(wanting: Wanting, senses: Senses) -> str:
    ran = await run(wanting, senses)
    assert isinstance(ran, RanPython), ran
    return ran.output


def says(text: str) -> Reply:
    return Reply(text=text, calls=(), usage=Usage(model="scripted", usd=Decimal("0.01")))


def picture(sandbox: Sandbox, name: str = "shot.png") -> Wanted:
    return Wanted(sense="image", files=(f"{sandbox.root}/{name}",), task=TASK)


def shown(message: dict[str, Any]) -> list[bytes]:
    """The pictures of a message, as the endpoint got them."""
    urls = [part["image_url"]["url"] for part in message["content"] if part["type"] == "image_url"]
    return [base64.b64decode(url.partition("base64,")[2]) for url in urls]


async def test_the_model_gets_the_picture_and_the_task_and_the_cell_its_answer(
    files: Sandbox, endpoint: Listening
) -> None:
    costs: list[Usage] = []
    assert await printed(Wanting(files, picture(files)), senses(eyes(endpoint), costs)) == "A grey field.\n"
    (request,) = endpoint.requests
    system, user = request["messages"]
    assert "never guess" in system["content"]
    assert user["content"][0] == {"type": "text", "text": TASK}
    assert shown(user) == [(Path(files.root) / "shot.png").read_bytes()]
    assert "tools" not in request
    assert [cost.model for cost in costs] == ["openai/recorded"]
    assert costs[0].completion_tokens > 0


async def test_the_frames_of_a_video_come_in_one_request_in_their_order(
    files: Sandbox, endpoint: Listening
) -> None:
    names = [papers.png(Path(files.scratch) / f"frame-{n}.png", 10 + n, 10) for n in range(3)]
    wanted = Wanted(sense="video", files=tuple(map(str, names)), task="What moves?")
    await printed(Wanting(files, wanted), senses(eyes(endpoint)))
    (request,) = endpoint.requests
    assert shown(request["messages"][1]) == [name.read_bytes() for name in names]
    assert "3 frames of one video" in request["messages"][0]["content"]


async def test_a_recording_is_sent_as_it_is_to_the_model_that_was_named(
    files: Sandbox, endpoint: Listening
) -> None:
    costs: list[Usage] = []
    wanted = Wanted(sense="audio", files=(f"{files.root}/said.wav",), model="whisper-1")
    who = senses(eyes(endpoint), costs, hearing=ears(endpoint))
    assert await printed(Wanting(files, wanted), who) == "The pump stops.\n"
    assert endpoint.key == KEY
    assert endpoint.field("model") == b"whisper-1"
    assert endpoint.field("file") == (Path(files.root) / "said.wav").read_bytes()
    assert [cost.model for cost in costs] == ["openai/whisper-1"]


async def test_the_key_of_one_provider_is_not_sent_to_another(
    files: Sandbox, endpoint: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-another-provider")
    monkeypatch.setenv("OPENAI_API_BASE", endpoint.base_url)
    hearing = LitellmHearing("anthropic/claude-sonnet-4-5", api_key=SecretStr(KEY), timeout=20)
    reply = await hearing.hear((Path(files.root) / "said.wav").read_bytes(), "said.wav", "whisper-1")
    assert reply.text == "The pump stops."
    assert endpoint.key == "sk-of-another-provider"


async def test_a_cell_names_only_models_that_the_operator_allows(files: Sandbox, endpoint: Listening) -> None:
    wanted = Wanted(sense="audio", files=(f"{files.root}/said.wav",), model="dearest/of-all")
    told = await printed(Wanting(files, wanted), senses(eyes(endpoint), hearing=ears(endpoint)))
    assert told == "!the operator allows no model 'dearest/of-all' here, only: whisper-1\n"
    assert endpoint.heard == b""


async def test_a_provider_that_fails_or_refuses_is_told_to_the_cell(
    files: Sandbox, endpoint: Listening
) -> None:
    endpoint.fail(server_error())
    told = await printed(Wanting(files, picture(files)), senses(eyes(endpoint)))
    assert told.startswith("!The model openai/recorded failed (500): ")
    refused = Scripted([ModelRefused("The key is wrong.")], sees=True)
    assert await printed(Wanting(files, picture(files)), senses(refused)) == "!The key is wrong.\n"


async def test_a_model_without_eyes_or_ears_is_not_asked(files: Sandbox) -> None:
    blind = Scripted([])
    told = await printed(Wanting(files, picture(files)), senses(blind))
    assert told == "!scripted, the model of this run, does not see pictures\n"
    wanted = Wanted(sense="audio", files=(f"{files.root}/said.wav",), model="whisper-1")
    assert (await printed(Wanting(files, wanted), senses(blind))).startswith("!no model that listens")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("{root}/absent.png", "!the picture cannot be read: "),
        ("/etc/passwd", "!the picture cannot be read: /etc/passwd is outside of the work tree"),
        ("{root}/link.png", "!the picture cannot be read: "),
        ("{root}/text.png", "!{root}/text.png is no picture that is known (png, jpg, gif, webp)\n"),
        ("{root}/said.wav", "!{root}/said.wav is no picture that is known (png, jpg, gif, webp)\n"),
        (
            "{root}/huge.png",
            f"!the picture has {PICTURE + 1:,} bytes, more than {PICTURE:,}: make it smaller",
        ),
    ],
)
async def test_only_pictures_of_the_sandbox_of_a_decent_size_are_shown(
    path: str, said: str, files: Sandbox
) -> None:
    root = Path(files.root)
    (root / "link.png").symlink_to("/etc/passwd")
    (root / "text.png").write_text("GET / HTTP/1.1")
    (root / "huge.png").write_bytes(b"\x89PNG\r\n\x1a\n".ljust(PICTURE + 1, b"\0"))
    model = Scripted([], sees=True)
    wanted = Wanted(sense="image", files=(path.format(root=root),))
    assert (await printed(Wanting(files, wanted), senses(model))).startswith(said.format(root=root))
    assert model.asked == []


async def test_a_cell_may_ask_several_times_but_not_on_and_on(files: Sandbox) -> None:
    model = Scripted([says(f"Look {n}") for n in range(ASKS)], sees=True)
    told = await printed(Wanting(files, *[picture(files)] * (ASKS + 1)), senses(model))
    assert told.splitlines() == [
        *(f"Look {n}" for n in range(ASKS)),
        f"!a cell may ask {ASKS} times: ask on in the next one",
    ]


async def test_a_cell_that_does_not_take_no_for_an_answer_is_interrupted(files: Sandbox) -> None:
    model = Scripted([says("Look")] * ASKS, sees=True)
    wanting = Wanting(files, *[picture(files)] * 1000)
    ran = await run(wanting, senses(model))
    assert isinstance(ran, Failed)
    assert "asked on and on" in ran.message
    assert wanting.interrupted
    assert len(wanting.provided) == ASKS + REFUSALS


async def test_a_run_at_its_limit_asks_nobody(files: Sandbox) -> None:
    model = Scripted([], sees=True)
    spent = Ended(reason="limit", detail="The budget of $2 is spent.")
    told = await printed(Wanting(files, picture(files)), senses(model, over=lambda: spent))
    assert told == "!The budget of $2 is spent.\n"


async def test_a_picture_that_is_viewed_is_described(files: Sandbox) -> None:
    costs: list[Usage] = []
    model = Scripted([says("A grey field.")], sees=True)
    seeing = Seeing(files, senses(model, costs))
    viewed = await seeing.act(ViewFile(path="shot.png"))
    assert isinstance(viewed, Viewed)
    assert viewed.text.startswith("     1\t[shot.png: image/png, 40 x 30 pixels, ")
    assert viewed.text.endswith("\n\nA grey field.")
    assert costs == [Usage(model="scripted", usd=Decimal("0.01"))]
    text = await seeing.act(ViewFile(path="."))
    assert text == await files.act(ViewFile(path="."))


async def test_a_picture_that_cannot_be_described_is_still_told(files: Sandbox) -> None:
    blind = await Seeing(files, senses(Scripted([]))).act(ViewFile(path="shot.png"))
    assert blind == await files.act(ViewFile(path="shot.png"))
    failing = Seeing(files, senses(Scripted([ModelRefused("No credit.")], sees=True)))
    viewed = await failing.act(ViewFile(path="shot.png"))
    assert isinstance(viewed, Viewed)
    assert viewed.text.endswith("[not described: No credit.]")
