"""Wraps tools, so that the risk of each call is rated before it is executed. A call that the policy does not
allow is refused.
"""

from collections import deque
from typing import Any

from patchwright.resolver.actions import Action, AnyObservation
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.security.risk import (
    RISK_LEVELS,
    Risk,
    RiskAnalyzer,
    RiskPolicy,
    RiskRating,
    get_highest_rating,
)
from patchwright.resolver.tools.tool import Tool, WrapperTool
from patchwright.runtime.observations import ActionFailure

RISK_FIELD = "security_risk"
_MAX_RATINGS = 64  # number of calls whose ratings are kept; no reply contains more calls


class PolicyTool(WrapperTool):
    """Wraps a tool with risk analyzers and a policy. The highest rating counts."""

    def __init__(self, tool: Tool, analyzers: tuple[RiskAnalyzer, ...], policy: RiskPolicy) -> None:
        super().__init__(tool)
        self._analyzers = analyzers
        self._policy = policy

    async def execute(self, action: Any) -> AnyObservation:
        rating = get_highest_rating(*(analyzer.rate(action) for analyzer in self._analyzers))
        if not self._policy.allows(rating):
            return ActionFailure(reason="refused", message=render_prompt("too_risky.md.j2", rating=rating))
        return await self._tool.execute(action)


class SelfRatingAnalyzer:
    """Uses the risk ratings that the model gives to its own calls. Each tool gets an additional field for this
    rating.

    The highest rating counts, so the model cannot lower the rating that the rules give. A call that the model
    does not rate gets "unknown".
    """

    def __init__(self) -> None:
        self._ratings: deque[tuple[Action, Risk]] = deque(maxlen=_MAX_RATINGS)

    def add_risk_field(self, tool: Tool) -> Tool:
        """Returns the tool with an additional risk field that the model fills in."""
        return _RiskFieldTool(tool, self._ratings)

    def rate(self, action: Action) -> RiskRating:
        rating = next(
            (risk for rated_action, risk in reversed(self._ratings) if rated_action == action), "unknown"
        )
        return RiskRating(risk=rating, reason="you gave this rating yourself")


class _RiskFieldTool:
    def __init__(self, tool: Tool, ratings: deque[tuple[Action, Risk]]) -> None:
        self._tool = tool
        self._ratings = ratings
        parameters = tool.spec.parameters
        field = {
            "type": "string",
            "enum": ["low", "medium", "high", "unknown"],
            "description": "How much harm the call could do outside the repository's work tree.",
        }
        self.spec = tool.spec.model_copy(
            update={
                "parameters": {**parameters, "properties": {**parameters["properties"], RISK_FIELD: field}}
            }
        )

    @property
    def kind(self) -> str:
        return self._tool.kind

    def parse(self, arguments: dict[str, Any]) -> Action:
        action = self._tool.parse({name: value for name, value in arguments.items() if name != RISK_FIELD})
        ratings: list[Risk] = [risk for risk in RISK_LEVELS if risk == arguments.get(RISK_FIELD)]
        self._ratings.extend((action, risk) for risk in ratings)
        return action

    async def execute(self, action: Any) -> AnyObservation:
        return await self._tool.execute(action)
