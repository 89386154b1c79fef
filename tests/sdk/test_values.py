"""Agents and models are frozen values that go to JSON and back."""

import copy
import json
import pickle
import pydoc
import subprocess
import sys
from collections.abc import Sequence

import pytest
from pydantic import TypeAdapter, ValidationError

from patchwright import (
    LLM,
    Agent,
    AgentState,
    BaseAgent,
    CustomAgent,
    RouterLLM,
    Tool,
    default_agent,
    resolve_issue,
)
from patchwright.resolver.actions import TOOL_ACTIONS
from patchwright.resolver.llm.model import ChatMessage
from patchwright.sdk.tools import BUILT_IN_TOOLS

MODEL = LLM(model="anthropic/claude-sonnet-4-5", api_key="sk-secret-key", timeout=60)


def count_lines(text: str) -> str:
    """Count the lines of a text."""
    return str(len(text.splitlines()))


class ByLength(RouterLLM):
    limit: int = 1000

    def select_llm(self, messages: Sequence[ChatMessage]) -> str:
        return "large" if sum(len(message.text) for message in messages) > self.limit else "small"


class Echo(CustomAgent):
    def step(self, state: AgentState) -> str:
        return state.messages[-1]


AGENTS = [
    default_agent(MODEL),
    Agent(llm=MODEL, tools=["run_shell", count_lines], instructions="Be brief.", max_steps=3),
    Agent(llm=ByLength(llms_for_routing={"small": MODEL, "large": LLM(model="openai/gpt-5")}, limit=7)),
    Echo(max_steps=4),
]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: type(agent).__name__)
def test_an_agent_goes_to_json_and_comes_back_equal(agent: BaseAgent) -> None:
    assert type(agent).model_validate_json(agent.model_dump_json()) == agent
    assert BaseAgent.model_validate_json(agent.model_dump_json()) == agent
    assert agent != agent.model_copy(update={"max_steps": 99})


def test_the_json_of_an_agent_has_only_the_names_of_its_tools() -> None:
    agent = default_agent(MODEL).model_copy(update={"tools": ("run_shell", "finish")})
    assert json.loads(agent.model_dump_json())["tools"] == ["run_shell", "finish"]


@pytest.mark.parametrize(
    "value", [MODEL, Tool(name="finish"), *AGENTS], ids=lambda value: type(value).__name__
)
def test_assigning_a_field_raises(value: LLM | Tool | BaseAgent) -> None:
    for name in type(value).model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(value, name, None)


def test_json_contains_the_key_only_on_request() -> None:
    agent = default_agent(MODEL)
    assert "sk-secret-key" not in agent.model_dump_json() + repr(agent)
    exposed = agent.model_dump_json(context={"expose_secrets": True})
    assert Agent.model_validate_json(exposed).llm.api_keys() == ("sk-secret-key",)


@pytest.mark.parametrize(
    "fields, problem",
    [
        ({"llm": {"model": "claude"}}, "has no provider: write provider/model"),
        ({"llm": MODEL, "tools": ["run_shel"]}, "unknown tool 'run_shel'; known: .*run_shell"),
        ({"llm": MODEL, "max_steps": 0}, "greater than or equal to 1"),
        ({"llm": MODEL, "max_stepps": 3}, "Extra inputs"),
        ({"llm": {"kind": "NoSuchRouter", "model": "a/b"}}, "unknown kind 'NoSuchRouter'; known: .*LLM"),
    ],
)
def test_a_wrong_configuration_raises_at_construction(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Agent.model_validate(fields)


def test_the_default_agent_has_shell_editor_python_browser_and_finish() -> None:
    agent = default_agent("openai/gpt-5")
    assert (agent, agent.llm) == (default_agent(LLM(model="openai/gpt-5")), LLM(model="openai/gpt-5"))
    tools = agent.tools
    assert {"run_shell", "view_file", "replace_text", "run_python", "browse", "finish"} <= set(tools)


def test_the_names_of_built_in_tools_are_those_of_their_actions() -> None:
    assert {action.model_fields["kind"].default for action in TOOL_ACTIONS} >= BUILT_IN_TOOLS


def test_a_function_must_not_replace_another_tool() -> None:
    def run_shell() -> str:
        """A function with the name of a built-in tool."""
        return ""

    with pytest.raises(ValidationError, match="there is a built-in tool run_shell"):
        Agent(llm=MODEL, tools=[run_shell])


def test_the_import_loads_no_other_library_and_little_of_python() -> None:
    code = "import sys; from patchwright import LLM, Agent, Conversation; print(*sys.modules)"
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert not loaded & {"litellm", "docker", "pydantic", "pydantic_core", "httpx", "jinja2", "fastapi"}
    assert not loaded & {"asyncio", "ssl", "logging", "importlib.metadata", "email", "inspect", "dataclasses"}
    ours = {name for name in loaded if name.startswith("patchwright.")}
    assert ours == {"patchwright.sdk", "patchwright.sdk.factories", "patchwright.sdk.lazy_class"}


def test_a_class_that_is_imported_on_first_use_is_like_any_class() -> None:
    llm = LLM(model="openai/gpt-5")
    assert isinstance(llm, LLM) and isinstance(llm, LLM | None) and not isinstance("openai/gpt-5", LLM)
    assert issubclass(ByLength, LLM) and not issubclass(Agent, LLM)
    assert {type(llm), LLM} == {LLM} and Agent != LLM
    match llm:
        case LLM(model=name):
            assert name == "openai/gpt-5"
    with pytest.raises(ValidationError, match="1 validation error for LLM\nmodel\n  Field required"):
        LLM()  # type: ignore[call-arg]
    pickled = pickle.dumps((LLM, llm))
    assert pickle.loads(pickled) == copy.deepcopy((LLM, llm)) == (LLM, llm)  # noqa: S301 (our own bytes)
    values = TypeAdapter(tuple[LLM, Agent | None]).validate_json('[{"model": "openai/gpt-5"}, null]')
    assert values == (llm, None)
    assert repr(LLM) == "<class 'patchwright.sdk.llm.LLM'>"


class Renamed(LLM):
    alias: str = "none"

    def api_keys(self) -> tuple[str, ...]:
        return (*super().api_keys(), self.alias)


def test_a_subclass_of_a_class_that_is_imported_on_first_use_is_a_model_with_fields_of_its_own() -> None:
    llm = Renamed(model="openai/gpt-5", api_key="sk-1", alias="first")
    assert isinstance(llm, LLM) and type(llm) is Renamed and llm.api_keys() == ("sk-1", "first")
    assert LLM.model_validate_json(llm.model_dump_json()) == llm
    with pytest.raises(ValidationError, match="valid string"):
        Renamed(model="openai/gpt-5", alias=3)  # type: ignore[arg-type]


def test_an_attribute_of_a_class_that_is_imported_on_first_use_can_be_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(LLM, "api_keys", lambda self: ("replaced",))
        patch.setattr(LLM, "added", True, raising=False)
        assert MODEL.api_keys() == ("replaced",)
    assert MODEL.api_keys() == ("sk-secret-key",) and not hasattr(LLM, "added")


def test_help_shows_the_fields_and_methods_of_a_class_that_is_imported_on_first_use() -> None:
    text = pydoc.plain(pydoc.render_doc(LLM))
    assert text.startswith("Python Library Documentation: class LLM in module patchwright.sdk.llm\n")
    assert " |  LLM(*, model: " in text
    order = [" |  A language model.", "Methods defined here:", "Returns the model that sends the requests."]
    assert sorted(order, key=text.index) == order


def test_a_function_without_a_docstring_is_rejected_when_the_agent_is_created() -> None:
    def unexplained(text: str) -> str:
        return text

    with pytest.raises(ValueError, match="has no docstring"):
        default_agent(MODEL).with_tools(unexplained)


def test_an_empty_issue_is_rejected_before_anything_starts() -> None:
    with pytest.raises(ValueError, match="the issue is empty"):
        resolve_issue(".", " \n# \n", MODEL)
