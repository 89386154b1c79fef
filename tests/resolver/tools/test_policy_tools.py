"""Calls are rated, and refused if the policy does not allow them."""

from typing import Any

import pytest
from pydantic import ValidationError

from patchwright.resolver.actions import Action
from patchwright.resolver.security.risk import RiskDecision, RiskRating, RuleAnalyzer, ThresholdPolicy
from patchwright.resolver.tools.policy_tools import PolicyTool, SelfRatingAnalyzer
from patchwright.resolver.tools.tool import ActionTool, Tool
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ActionFailure, Observation, ShellResult

RULES = RuleAnalyzer("/workspace", "/tmp")


class RecordingShell:
    """Records the actions that reach it."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def tool(self) -> Tool:
        return ActionTool(RunShell, self.run)

    async def run(self, action: RunShell) -> Observation:
        self.ran.append(action.command)
        return ShellResult(output="", exit_code=0, cwd="/", seconds=0.1)


async def call(tool: Tool, **arguments: Any) -> object:
    return await tool.execute(tool.parse(arguments))


async def test_a_risky_call_is_refused_and_never_reaches_the_sandbox() -> None:
    shell = RecordingShell()
    result = await call(PolicyTool(shell.tool(), (RULES,), ThresholdPolicy()), command="git push origin main")
    assert isinstance(result, ActionFailure) and result.reason == "refused"
    assert result.message.startswith(
        "This call was not run: `git push` uploads the work (risk: high), and this installation rejects"
    )
    assert shell.ran == []


async def test_without_the_policy_the_same_call_runs() -> None:
    shell = RecordingShell()
    await call(
        PolicyTool(shell.tool(), (RULES,), ThresholdPolicy(threshold=None)), command="git push origin main"
    )
    assert shell.ran == ["git push origin main"]


async def test_an_allowed_call_passes_unchanged() -> None:
    shell = RecordingShell()
    tool = shell.tool()
    guarded = PolicyTool(tool, (RULES,), ThresholdPolicy())
    assert (guarded.spec, guarded.kind) == (tool.spec, tool.kind)
    assert isinstance(await call(guarded, command="pytest"), ShellResult)
    assert shell.ran == ["pytest"]


async def test_the_risk_threshold_is_validated() -> None:
    shell = RecordingShell()
    strict = PolicyTool(shell.tool(), (RULES,), ThresholdPolicy(threshold="medium"))
    assert isinstance(await call(strict, command="pytest"), ActionFailure)
    assert isinstance(await call(strict, command="cat a.py"), ShellResult)


async def test_where_nobody_can_be_asked_the_call_is_refused() -> None:
    shell = RecordingShell()
    asking = PolicyTool(shell.tool(), (RULES,), ThresholdPolicy(response="ask"))
    result = await call(asking, command="git push")
    assert isinstance(result, ActionFailure) and "nobody can be asked here" in result.message
    assert isinstance(await call(asking, command="ls"), ShellResult) and shell.ran == ["ls"]


async def test_custom_analyzers_and_policies_can_be_plugged_in() -> None:
    class NoCats:
        def rate(self, action: Action) -> RiskRating:
            assert isinstance(action, RunShell)
            return RiskRating(risk="medium" if "cat" in action.command else "low", reason="no cats here")

    class Strict:
        def decide(self, rating: RiskRating) -> RiskDecision:
            return "allow" if rating.risk == "low" else "refuse"

    result = await call(PolicyTool(RecordingShell().tool(), (NoCats(), RULES), Strict()), command="cat a.py")
    assert isinstance(result, ActionFailure) and "no cats here" in result.message


# --- the model's own rating -----------------------------------------------------------------------------------------


def call_with_rating(shell: RecordingShell, threshold: str = "high") -> PolicyTool:
    own = SelfRatingAnalyzer()
    return PolicyTool(own.add_risk_field(shell.tool()), (RULES, own), ThresholdPolicy(threshold=threshold))  # type: ignore[arg-type]


async def test_the_models_rating_can_raise_the_risk() -> None:
    shell = RecordingShell()
    assert isinstance(
        await call(call_with_rating(shell), command="cat a.py", security_risk="high"), ActionFailure
    )
    assert shell.ran == []


async def test_the_models_rating_cannot_lower_the_risk() -> None:
    assert isinstance(
        await call(call_with_rating(RecordingShell()), command="git push", security_risk="low"), ActionFailure
    )


@pytest.mark.parametrize("expected", [None, "harmless", 7, ["low"]])
async def test_a_missing_or_invalid_rating_is_unknown(expected: object) -> None:
    shell = RecordingShell()
    given = {} if expected is None else {"security_risk": expected}
    assert isinstance(await call(call_with_rating(shell), command="cat a.py", **given), ShellResult)
    assert isinstance(
        await call(call_with_rating(shell, "unknown"), command="cat a.py", **given), ActionFailure
    )


def test_the_risk_field_is_added_and_stripped() -> None:
    tool = call_with_rating(RecordingShell())
    assert tool.spec.parameters["properties"]["security_risk"]["enum"] == ["low", "medium", "high", "unknown"]
    assert tool.parse({"command": "ls", "security_risk": "low"}) == RunShell(command="ls")
    with pytest.raises(ValidationError):
        tool.parse({"command": "ls", "securityrisk": "low"})
