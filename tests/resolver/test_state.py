"""The log is the one thing that changes in a run; what works on it is a value, or is made anew from values."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Literal

import jsonschema
import pytest
from pydantic import ValidationError

from resolver.agent import Agent, begin
from resolver.domain import RunId
from resolver.errors import SettingsError
from resolver.events import Usage
from resolver.llm.model import FromTool, Message, Model, Reply, ToolSpec
from resolver.log import FileLog, FileLogs
from resolver.replay import as_sent
from resolver.rules import Limits
from resolver.settings.settings import Settings, build
from resolver.tools.own import FunctionTool
from resolver.tools.talk import talk_tools
from resolver.tools.tool import Tools, parameters
from runtime.actions import RunShell
from runtime.frozen import Frozen
from tests.resolver.agents import FINISH, Box, agent, create, kinds
from tests.resolver.scripted import Scripted, call, turn_of


@pytest.fixture
async def log(tmp_path: Path) -> AsyncIterator[FileLog]:
    async with FileLogs(tmp_path).open(RunId("run")) as log:
        yield log


def values(kind: type[Frozen] = Frozen) -> Iterator[type[Frozen]]:
    """Every class of values that the program has."""
    for below in kind.__subclasses__():
        yield below
        yield from values(below)


def test_no_value_can_be_changed_and_none_takes_a_field_that_it_does_not_know() -> None:
    found = list(values())
    assert len(found) > 100
    assert [kind for kind in found if not kind.model_config.get("frozen")] == []
    settings = Settings(data=Path("/data"))
    with pytest.raises(ValidationError, match="frozen"):
        settings.max_steps = 1


def test_settings_and_limits_are_the_same_after_a_way_as_json(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, model="m/n", allow_hosts=("example.org",), max_steps=7)
    assert Settings.model_validate_json(settings.model_dump_json()) == settings
    limits = Limits(steps=3)
    assert Limits.model_validate_json(limits.model_dump_json()) == limits


def test_wrong_settings_are_refused_before_anything_begins(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="'kernel', 'documents'"):
        build({"data": tmp_path, "plugins": ("nonsense",)}, "the test")


def test_by_default_a_run_is_set_up_as_in_the_paper_on_multimodal_browsing(tmp_path: Path) -> None:
    """100 steps, a plan every 10; temperature 0 and one page shown are held where models and pages are."""
    settings = Settings(data=tmp_path)
    assert (settings.max_steps, settings.plan_every) == (100, 10)


def told(worker: Agent) -> dict[str, object]:
    """All that an agent is made of, as far as it can be written down."""
    return {
        each.name: as_sent(worker.tools.specs) if each.name == "tools" else repr(getattr(worker, each.name))
        for each in fields(worker)
        if each.name != "_arrived"
    }


async def test_an_agent_is_the_same_after_its_run_as_before(log: FileLog) -> None:
    worker = agent(Scripted([RunShell(command="pytest"), create("a.py"), FINISH]), Box())
    await begin(log, "You mend.", "Issue 7", worker.tools)
    before = told(worker)
    assert (await worker.run(log)).reason == "finished"
    assert told(worker) == before


# --- parts that others bring ------------------------------------------------------------------------------------


class LooksThenEnds:
    """A whole agent of somebody else's: what was said so far comes in, the next action goes out."""

    name, sees, window = "own", False, None

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        last = messages[-1]
        saw = isinstance(last, FromTool) and "pytest" in last.text
        action = FINISH if saw else RunShell(command="pytest")
        return Reply(text="", calls=(call(f"c{turn_of(messages)}", action),), usage=Usage(model="own"))


async def test_an_agent_of_ones_own_needs_nothing_but_the_next_step(log: FileLog) -> None:
    box = Box()
    worker = Agent(LooksThenEnds(), agent(Scripted([]), box).tools, Limits(), box.patch, box.scratch)
    await begin(log, "", "Issue 7", worker.tools)
    assert (await worker.run(log)).reason == "finished"
    assert box.acted == [RunShell(command="pytest")]
    assert kinds(log)[2:] == ["decided", "observed", "decided", "observed", "ended"]


class InTurns:
    """A router of somebody else's: one model begins, the other one goes on."""

    name, sees, window = "in turns", False, None

    def __init__(self, first: Model, then: Model) -> None:
        self._first, self._then = first, then

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        return await (self._then if turn_of(messages) else self._first).reply(messages, tools)


def count_letters(word: str) -> str:
    """Count the letters of a word."""
    return f"{len(word)} letters"


async def test_a_tool_and_a_router_of_ones_own_fit_in_without_a_change(log: FileLog) -> None:
    box = Box()
    asks = Reply.model_validate(
        {
            "text": "",
            "calls": [{"id": "c", "name": "count_letters", "arguments": json.dumps({"word": "patch"})}],
            "usage": {"model": "first"},
        }
    )
    first, then = Scripted([asks]), Scripted([FINISH])
    tools = Tools((FunctionTool(count_letters, box), *talk_tools()))  # type: ignore[arg-type]
    worker = Agent(InTurns(first, then), tools, Limits(), box.patch, box.scratch)
    await begin(log, "", "Count.", tools)
    assert (await worker.run(log)).reason == "finished"
    assert (len(first.asked), len(then.asked)) == (1, 1)
    said = then.asked[0][-1]
    assert isinstance(said, FromTool) and "5 letters" in said.text


# --- schemas ----------------------------------------------------------------------------------------------------


class Place(Frozen):
    file: str
    line: int | None = None


class Note(Frozen):
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
def test_the_schema_that_a_model_reads_says_what_the_class_takes(
    arguments: dict[str, object], fits: bool
) -> None:
    """Objects in objects, enumerations, what may be left out."""
    assert jsonschema.Draft202012Validator(parameters(Note)).is_valid(arguments) == fits
    if fits:
        Note.model_validate_json(json.dumps(arguments))
    else:
        with pytest.raises(ValidationError):
            Note.model_validate_json(json.dumps(arguments))
