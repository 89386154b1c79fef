"""Calls that are rated, and refused where the policy says so."""

from typing import Any

import pytest
from pydantic import ValidationError

from resolver.actions import Action
from resolver.security.risk import Rating, RefuseFrom, Rules
from resolver.tools.guarded import Guarded, SelfRating
from resolver.tools.tool import ActionTool, Tool
from runtime.actions import RunShell
from runtime.observations import Failed, Observation, Ran

RULES = Rules("/workspace", "/tmp")


class Shell:
    """Remembers what reached it."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def tool(self) -> Tool:
        return ActionTool(RunShell, self.run)

    async def run(self, action: RunShell) -> Observation:
        self.ran.append(action.command)
        return Ran(output="", exit_code=0, cwd="/", seconds=0.1)


async def call(tool: Tool, **arguments: Any) -> object:
    return await tool.answer(tool.parse(arguments))


async def test_a_risky_call_is_refused_with_the_reason_and_never_reaches_the_sandbox() -> None:
    shell = Shell()
    seen = await call(Guarded(shell.tool(), (RULES,), RefuseFrom()), command="git push origin main")
    assert isinstance(seen, Failed) and seen.reason == "refused"
    assert seen.message.startswith(
        "This call was not run: `git push` sends the work elsewhere (risk: high), and this installation refuses"
    )
    assert shell.ran == []


async def test_without_the_policy_the_same_call_runs() -> None:
    shell = Shell()
    await call(Guarded(shell.tool(), (RULES,), RefuseFrom(threshold=None)), command="git push origin main")
    assert shell.ran == ["git push origin main"]


async def test_what_is_allowed_passes_unchanged() -> None:
    shell = Shell()
    tool = shell.tool()
    guarded = Guarded(tool, (RULES,), RefuseFrom())
    assert (guarded.spec, guarded.kind) == (tool.spec, tool.kind)
    assert isinstance(await call(guarded, command="pytest"), Ran)
    assert shell.ran == ["pytest"]


async def test_the_threshold_is_one_of_the_operators_values() -> None:
    shell = Shell()
    strict = Guarded(shell.tool(), (RULES,), RefuseFrom(threshold="medium"))
    assert isinstance(await call(strict, command="pytest"), Failed)
    assert isinstance(await call(strict, command="cat a.py"), Ran)


async def test_another_analyzer_and_another_policy_fit_in_without_a_change() -> None:
    class NoCats:
        def rate(self, action: Action) -> Rating:
            assert isinstance(action, RunShell)
            return Rating(risk="medium" if "cat" in action.command else "low", why="no cats here")

    class Strict:
        def allows(self, rating: Rating) -> bool:
            return rating.risk == "low"

    seen = await call(Guarded(Shell().tool(), (NoCats(), RULES), Strict()), command="cat a.py")
    assert isinstance(seen, Failed) and "no cats here" in seen.message


# --- the model's own rating -----------------------------------------------------------------------------------------


def rated(shell: Shell, threshold: str = "high") -> Guarded:
    own = SelfRating()
    return Guarded(own.asking(shell.tool()), (RULES, own), RefuseFrom(threshold=threshold))  # type: ignore[arg-type]


async def test_the_models_rating_raises_what_the_rules_say() -> None:
    shell = Shell()
    assert isinstance(await call(rated(shell), command="cat a.py", security_risk="high"), Failed)
    assert shell.ran == []


async def test_the_models_rating_lowers_nothing() -> None:
    assert isinstance(await call(rated(Shell()), command="git push", security_risk="low"), Failed)


@pytest.mark.parametrize("said", [None, "harmless", 7, ["low"]])
async def test_a_rating_that_is_missing_or_none_is_unknown(said: object) -> None:
    shell = Shell()
    given = {} if said is None else {"security_risk": said}
    assert isinstance(await call(rated(shell), command="cat a.py", **given), Ran)
    assert isinstance(await call(rated(shell, "unknown"), command="cat a.py", **given), Failed)


def test_the_field_is_asked_for_and_stripped() -> None:
    tool = rated(Shell())
    assert tool.spec.parameters["properties"]["security_risk"]["enum"] == ["low", "medium", "high", "unknown"]
    assert tool.parse({"command": "ls", "security_risk": "low"}) == RunShell(command="ls")
    with pytest.raises(ValidationError):
        tool.parse({"command": "ls", "securityrisk": "low"})
