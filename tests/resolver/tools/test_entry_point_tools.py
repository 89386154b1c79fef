"""Typed functions as tools, including the example in docs/tools.md."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from patchwright.resolver.actions import ExternalToolResult
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.llm.model import RawToolCall
from patchwright.resolver.tool_actions.unchecked_actions import MalformedCall
from patchwright.resolver.tools.entry_point_tools import FunctionTool, ToolFailed
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.actions import RunShell
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import ActionFailure, ShellResult
from patchwright.runtime.sandbox import Sandbox


async def count_lines(
    sandbox: Sandbox,
    path: Annotated[str, Field(description="File, relative to the repository root.")],
    kind: Literal["all", "code"] = "all",
) -> str:
    """Count the lines of a file."""
    pattern = "" if kind == "all" else "."
    result = await sandbox.act(RunShell(command=f"grep -c '{pattern}' {path}"))
    if not isinstance(result, ShellResult) or result.exit_code:
        raise ToolFailed(f"there is no file {path}: list the directory first")
    return f"{result.output.strip()} lines"


def add(a: int, b: int = 1) -> str:
    """Add two numbers."""
    return str(a + b)


@pytest.fixture
async def sandbox(short_tmp: Path) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(short_tmp, os.environ).open("tools") as opened:
        await opened.act(RunShell(command="printf 'a\n\nb\n' > x.py"))
        yield opened


def call(name: str, **arguments: object) -> RawToolCall:
    return RawToolCall(id="1", name=name, arguments=json.dumps(arguments))


async def test_a_typed_function_is_described_validated_and_called(sandbox: Sandbox) -> None:
    tools = ToolRegistry([FunctionTool(count_lines, sandbox), FunctionTool(add, sandbox)])
    spec = tools.specs[0]
    assert (spec.name, spec.description) == ("count_lines", "Count the lines of a file.")
    assert spec.parameters["properties"] == {
        "path": {"description": "File, relative to the repository root.", "type": "string"},
        "kind": {"default": "all", "enum": ["all", "code"], "type": "string"},
    }
    assert spec.parameters["required"] == ["path"]
    assert await tools.execute(tools.parse(call("count_lines", path="x.py"))) == ExternalToolResult(
        text="3 lines"
    )
    assert await tools.execute(
        tools.parse(call("count_lines", path="x.py", kind="code"))
    ) == ExternalToolResult(text="2 lines")
    assert await tools.execute(tools.parse(call("add", a=2))) == ExternalToolResult(text="3")


async def test_the_example_in_the_docs_works(sandbox: Sandbox) -> None:
    text = (Path(__file__).parents[3] / "docs" / "tools.md").read_text()
    names: dict[str, Any] = {}
    exec(text.partition("```python\n")[2].partition("```")[0], names)  # noqa: S102  # our own words
    tools = ToolRegistry([FunctionTool(names["count_lines"], sandbox)])
    assert await tools.execute(tools.parse(call("count_lines", path="x.py"))) == ExternalToolResult(
        text="3 lines"
    )
    absent = await tools.execute(tools.parse(call("count_lines", path="it's absent")))
    assert absent == ActionFailure(
        reason="io", message="there is no file it's absent: list the directory first"
    )


async def test_invalid_arguments_never_reach_the_function(sandbox: Sandbox) -> None:
    tools = ToolRegistry([FunctionTool(add, sandbox)])
    for arguments in ({}, {"a": "x"}, {"a": 1, "c": 2}, {"a": [1]}):
        action = tools.parse(call("add", **arguments))
        assert isinstance(action, MalformedCall) and "`add` takes one JSON object" in action.problem


async def test_a_failure_raised_by_the_function_is_an_observation(sandbox: Sandbox) -> None:
    tools = ToolRegistry([FunctionTool(count_lines, sandbox)])
    result = await tools.execute(tools.parse(call("count_lines", path="absent.py")))
    assert result == ActionFailure(
        reason="io", message="there is no file absent.py: list the directory first"
    )


async def test_a_bug_in_the_function_is_an_observation(
    sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    def look_up(key: str) -> str:
        """Look something up."""
        return {"a": "b"}[key]

    def nothing() -> str:
        """Say nothing."""
        return None  # type: ignore[return-value]

    tools = ToolRegistry([FunctionTool(look_up, sandbox), FunctionTool(nothing, sandbox)])
    result = await tools.execute(tools.parse(call("look_up", key="x")))
    assert result == ActionFailure(
        reason="io", message="look_up failed (KeyError: 'x'). Continue without this tool."
    )
    assert [record.getMessage() for record in caplog.records] == ["tool failed"]
    assert isinstance(await tools.execute(tools.parse(call("nothing"))), ActionFailure)


async def test_a_function_tools_result_is_clipped(sandbox: Sandbox) -> None:
    def flood() -> str:
        """Say very much."""
        return "x" * 1_000_000

    tools = ToolRegistry([FunctionTool(flood, sandbox)])
    result = await tools.execute(tools.parse(call("flood")))
    assert isinstance(result, ExternalToolResult) and len(result.text) < 40_000


def test_a_function_without_description_is_a_settings_error(sandbox: Sandbox) -> None:
    def silent(a: int) -> str:
        return ""

    def untyped(a) -> str:  # type: ignore[no-untyped-def]
        """Something."""
        return ""

    def greedy(*a: int) -> str:
        """Something."""
        return ""

    for function, notice in (
        (silent, "has no docstring"),
        (untyped, "argument a has no type"),
        (greedy, "no type"),
    ):
        with pytest.raises(SettingsError, match=notice):
            FunctionTool(function, sandbox)
