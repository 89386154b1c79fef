"""Only the log changes during a run; everything else is an immutable value."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Literal

import jsonschema
import mcp.types
import pytest
from pydantic import ValidationError

from patchwright.resolver.agent.agent import Agent, record_prompts
from patchwright.resolver.browsing.browser_options import options_from_settings
from patchwright.resolver.domain import RunId
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.model import ChatMessage, Model, Reply, ToolMessage, ToolSpec
from patchwright.resolver.llm.prompt_fingerprint import tool_schemas
from patchwright.resolver.run_limits import PLANNING_INTERVAL, Limits
from patchwright.resolver.run_log import FileLogStore, FileRunLog
from patchwright.resolver.settings.settings import Settings, build_settings
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.entry_point_tools import FunctionTool
from patchwright.resolver.tools.mcp import McpTool
from patchwright.resolver.tools.tool import ToolRegistry, build_parameters_schema
from patchwright.runtime.actions import RunShell
from patchwright.runtime.frozen_model import FrozenModel
from tests.resolver.agent_runs import FINISH, FakeSandbox, create_file, event_kinds, make_agent
from tests.resolver.scripted_model import ScriptedModel, count_replies, tool_call


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[FileRunLog]:
    async with FileLogStore(tmp_path).open(RunId("run")) as log:
        yield log


def values(kind: type[FrozenModel] = FrozenModel) -> Iterator[type[FrozenModel]]:
    """Yields every value class of the program."""
    for below in kind.__subclasses__():
        yield below
        yield from values(below)


def test_values_are_immutable_and_reject_unknown_fields() -> None:
    found = list(values())
    assert len(found) > 100
    assert [kind for kind in found if not kind.model_config.get("frozen")] == []
    settings = Settings(data=Path("/data"))
    with pytest.raises(ValidationError, match="frozen"):
        settings.max_steps = 1


def test_settings_and_limits_survive_a_json_round_trip(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, model="m/n", allowed_hosts=("example.org",), max_steps=7)
    assert Settings.model_validate_json(settings.model_dump_json()) == settings
    limits = Limits(steps=3)
    assert Limits.model_validate_json(limits.model_dump_json()) == limits


def test_invalid_settings_are_rejected_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="'nonsense' is not one of kernel, documents"):
        build_settings({"data": tmp_path, "sandbox_features": ("nonsense",)})


def test_the_default_limits_are_those_of_the_multimodal_browsing_paper(tmp_path: Path) -> None:
    """100 steps, a plan every 10, one visible page. The temperature is 0 if there is no reasoning effort."""
    settings = Settings(data=tmp_path)
    assert (settings.max_steps, PLANNING_INTERVAL, options_from_settings(settings).pages) == (100, 10, 1)
    assert settings.reasoning_effort is None


def prompt_inputs(worker: Agent) -> dict[str, object]:
    """Returns the fields of an agent in comparable form."""
    return {
        each.name: tool_schemas(worker.tools.specs)
        if each.name == "tools"
        else repr(getattr(worker, each.name))
        for each in fields(worker)
        if each.name != "_has_taken_over"
    }


async def test_an_agent_does_not_change_during_its_run(log: FileRunLog) -> None:
    worker = make_agent(
        ScriptedModel([RunShell(command="pytest"), create_file("a.py"), FINISH]), FakeSandbox()
    )
    await record_prompts(log, "You fix.", "Issue 7", worker.tools)
    before = prompt_inputs(worker)
    assert (await worker.run(log)).reason == "finished"
    assert prompt_inputs(worker) == before


# --- extensions
# -------------------------------------------------------------------------------------------------


class CustomAgentModel:
    """A custom agent that maps the conversation to the next action."""

    name, supports_vision, context_window = "own", False, None

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        last = messages[-1]
        saw = isinstance(last, ToolMessage) and "pytest" in last.text
        action = FINISH if saw else RunShell(command="pytest")
        return Reply(
            text="",
            tool_calls=(tool_call(f"c{count_replies(messages)}", action),),
            usage=ReplyUsage(model="own"),
        )


async def test_a_custom_agent_only_returns_the_next_action(log: FileRunLog) -> None:
    box = FakeSandbox()
    worker = Agent(
        CustomAgentModel(), make_agent(ScriptedModel([]), box).tools, Limits(), box.patch, box.scratch
    )
    await record_prompts(log, "", "Issue 7", worker.tools)
    assert (await worker.run(log)).reason == "finished"
    assert box.acted == [RunShell(command="pytest")]
    assert event_kinds(log)[2:] == [
        "model_reply",
        "tool_result",
        "model_reply",
        "tool_result",
        "agent_stopped",
    ]


class CustomRouter:
    """A custom router: one model starts and another one continues."""

    name, supports_vision, context_window = "in turns", False, None

    def __init__(self, first: Model, then: Model) -> None:
        self._first, self._then = first, then

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        return await (self._then if count_replies(messages) else self._first).reply(messages, tools)


def count_letters(word: str) -> str:
    """Count the letters of a word."""
    return f"{len(word)} letters"


async def test_custom_tools_and_routers_need_no_change_to_the_code(log: FileRunLog) -> None:
    box = FakeSandbox()
    asks = Reply.model_validate(
        {
            "text": "",
            "tool_calls": [{"id": "c", "name": "count_letters", "arguments": json.dumps({"word": "patch"})}],
            "usage": {"model": "first"},
        }
    )
    first, then = ScriptedModel([asks]), ScriptedModel([FINISH])
    tools = ToolRegistry((FunctionTool(count_letters, box), *build_control_tools()))  # type: ignore[arg-type]
    worker = Agent(CustomRouter(first, then), tools, Limits(), box.patch, box.scratch)
    await record_prompts(log, "", "Count.", tools)
    assert (await worker.run(log)).reason == "finished"
    assert (len(first.requests), len(then.requests)) == (1, 1)
    message = then.requests[0][-1]
    assert isinstance(message, ToolMessage) and "5 letters" in message.text


# --- schemas ----------------------------------------------------------------------------------------------------


class Place(FrozenModel):
    file: str
    line: int | None = None


class Note(FrozenModel):
    """A note on places."""

    kind: Literal["note"] = "note"
    weight: Literal["light", "heavy"]
    places: tuple[Place, ...]
    main: Place


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        (
            {"weight": "light", "places": [{"file": "a", "line": 3}, {"file": "b"}], "main": {"file": "a"}},
            True,
        ),
        ({"weight": "light", "places": [], "main": {"file": "a", "line": None}}, True),
        ({"weight": "medium", "places": [], "main": {"file": "a"}}, False),
        ({"weight": "light", "places": [{"line": 3}], "main": {"file": "a"}}, False),
        ({"weight": "light", "places": [], "main": {"file": "a", "line": "three"}}, False),
        ({"weight": "light", "places": []}, False),
        ({"weight": "light", "places": [], "main": {"file": "a"}, "more": 1}, False),
    ],
)
def test_a_tool_schema_accepts_what_its_class_accepts(arguments: dict[str, object], fits: bool) -> None:
    """Nested objects, enumerations, and optional fields."""
    assert jsonschema.Draft202012Validator(build_parameters_schema(Note)).is_valid(arguments) == fits
    if fits:
        Note.model_validate_json(json.dumps(arguments))
    else:
        with pytest.raises(ValidationError):
            Note.model_validate_json(json.dumps(arguments))


def test_a_tool_schema_survives_the_way_to_an_mcp_client_and_back() -> None:
    schema = build_parameters_schema(Note)
    listed = ToolSpec(name="note", description="A note.", parameters=schema).to_mcp_tool()
    definition = mcp.types.Tool.model_validate_json(json.dumps(listed))
    assert McpTool("notes", definition, None).spec.parameters == schema  # type: ignore[arg-type]
