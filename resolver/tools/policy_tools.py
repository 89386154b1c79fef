"""Wraps tools, so that the risk of each call is rated before it is executed. The policy allows or refuses the call, or
lets a person decide.
"""

import json
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from patchwright.resolver.actions import Action, AnyObservation
from patchwright.resolver.confirmation import (
    CallDecision,
    ConfirmationRequest,
    ConfirmationRequired,
    make_call_code,
    render_exact_call,
)
from patchwright.resolver.events import AgentStopped, Message
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.security.risk import (
    RISK_LEVELS,
    Risk,
    RiskAnalyzer,
    RiskPolicy,
    RiskRating,
    get_highest_rating,
)
from patchwright.resolver.security.shell_parser import EXPANSION, parse_programs
from patchwright.resolver.tool_actions.unchecked_actions import CallTool
from patchwright.resolver.tools.tool import Tool, WrapperTool
from patchwright.runtime.observations import ActionFailure
from patchwright.runtime.sandbox import current_call_id

RISK_FIELD = "security_risk"
_MAX_RATINGS = 64  # number of calls whose ratings are kept; no reply contains more calls
MAX_SHOWN_CALL = 4_000  # characters; a person cannot check a longer call


class PolicyTool(WrapperTool):
    """Wraps a tool with risk analyzers and a policy. The highest rating counts."""

    def __init__(
        self,
        tool: Tool,
        analyzers: tuple[RiskAnalyzer, ...],
        policy: RiskPolicy,
        confirmations: "Confirmations | None" = None,
    ) -> None:
        """If `confirmations` is None, no person can decide, and the calls that a person should decide are refused."""
        super().__init__(tool)
        self._analyzers = analyzers
        self._policy = policy
        self._confirmations = confirmations

    async def execute(self, action: Any) -> AnyObservation:
        rating = get_highest_rating(*(analyzer.rate(action) for analyzer in self._analyzers))
        decision = self._policy.decide(rating)
        if decision not in ("allow", "ask"):
            return _refuse(rating, "policy")
        if self._confirmations is None:
            return _refuse(rating, "nobody") if decision == "ask" else await self._tool.execute(action)
        refusal = self._confirmations.check(action, rating, must_ask=decision == "ask")
        return refusal or await self._tool.execute(action)


def _refuse(rating: RiskRating, cause: Literal["policy", "nobody", "too_long"]) -> ActionFailure:
    text = render_prompt("too_risky.md.j2", rating=rating, cause=cause, max_length=MAX_SHOWN_CALL)
    return ActionFailure(reason="refused", message=text)


class Confirmations:
    """Finds in the log of a run what a person decided about the current call."""

    def __init__(self, log: RunLog, timeout: timedelta | None = None) -> None:
        """`timeout` is the time after which an undecided call is rejected. None means no limit."""
        self._log = log
        self._timeout = timeout

    def check(self, action: Action, rating: RiskRating, *, must_ask: bool) -> ActionFailure | None:
        """Returns None if the call may run, and a failure if it was rejected. Raises ConfirmationRequired if a person
        has to decide. A call that has once waited for a decision needs one, even if the policy has changed since.
        """
        code = make_call_code(current_call_id.get(), action)
        similar = describe_similarity(action, rating)
        for event in self._log.trajectory:
            match event:
                case AgentStopped(confirmation=ConfirmationRequest(code=waiting)):
                    must_ask = must_ask or waiting == code
                case Message(decision=CallDecision() as decision):
                    if decision.code == code and not decision.approved:
                        return ActionFailure(reason="refused", message=event.text)
                    if decision.code == code or (decision.approved and decision.similar == similar):
                        must_ask = False
                case _:
                    pass
        if not must_ask:
            return None
        if len(call := render_exact_call(action)) > MAX_SHOWN_CALL:
            return _refuse(rating, "too_long")
        expires_at = datetime.now(UTC) + self._timeout if self._timeout else None
        raise ConfirmationRequired(
            ConfirmationRequest(
                code=code,
                call=call,
                risk=rating.risk,
                reason=rating.reason,
                similar=similar,
                expires_at=expires_at,
            )
        )


def describe_similarity(action: Action, rating: RiskRating) -> str:
    """Returns a text that is equal for similar calls: the same tool, the same risk for the same reason and, in the
    shell, the same programs in the same order. A command whose programs are unknown is similar only to itself.
    """
    what: object = action.name if isinstance(action, CallTool) else action.kind
    if command := action.describe().shell_command:
        programs = parse_programs(command)
        if programs is None or any(EXPANSION in program.name for program in programs):
            what = command
        else:
            what = [(*program.launchers, program.name, *program.output_files) for program in programs]
    return json.dumps([action.kind, what, rating.risk, rating.reason])


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
        return RiskRating(risk=rating, reason="the agent itself gives this rating")


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
