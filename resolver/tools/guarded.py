"""Tools whose calls are rated before they are answered, and refused where the policy says so."""

from collections import deque
from typing import Any

from resolver import prose
from resolver.actions import Action, Result
from resolver.security.risk import ORDER, Analyzer, Policy, Rating, Risk, highest
from resolver.tools.tool import Around, Tool
from runtime.observations import Failed

FIELD = "security_risk"
_REMEMBERED = 64  # calls: more than one reply may make


class Guarded(Around):
    """A tool behind analyzers and a policy. The most severe rating counts."""

    def __init__(self, tool: Tool, analyzers: tuple[Analyzer, ...], policy: Policy) -> None:
        super().__init__(tool)
        self._analyzers = analyzers
        self._policy = policy

    async def answer(self, action: Any) -> Result:
        rating = highest(*(analyzer.rate(action) for analyzer in self._analyzers))
        if not self._policy.allows(rating):
            return Failed(reason="refused", message=prose.too_risky(rating))
        return await self._tool.answer(action)


class SelfRating:
    """The model's own rating of its calls: an analyzer, and the tools that ask for it.

    It can only raise what the rules say: beside them, the most severe rating counts. A call without it is unknown.
    """

    def __init__(self) -> None:
        self._said: deque[tuple[Action, Risk]] = deque(maxlen=_REMEMBERED)

    def asking(self, tool: Tool) -> Tool:
        """The same tool, with one more field that the model fills in."""
        return _Asking(tool, self._said)

    def rate(self, action: Action) -> Rating:
        said = next((risk for known, risk in reversed(self._said) if known == action), "unknown")
        return Rating(risk=said, why="you rated it so yourself")


class _Asking:
    def __init__(self, tool: Tool, said: deque[tuple[Action, Risk]]) -> None:
        self._tool = tool
        self._said = said
        parameters = tool.spec.parameters
        field = {
            "type": "string",
            "enum": ["low", "medium", "high", "unknown"],
            "description": "How much harm the call could do outside of the repository's work tree.",
        }
        self.spec = tool.spec.model_copy(
            update={"parameters": {**parameters, "properties": {**parameters["properties"], FIELD: field}}}
        )

    @property
    def kind(self) -> str:
        return self._tool.kind

    def parse(self, arguments: dict[str, Any]) -> Action:
        action = self._tool.parse({name: value for name, value in arguments.items() if name != FIELD})
        said: list[Risk] = [risk for risk in ORDER if risk == arguments.get(FIELD)]
        self._said.extend((action, risk) for risk in said)
        return action

    async def answer(self, action: Any) -> Result:
        return await self._tool.answer(action)
