"""A model that replies with the lines of a script."""

from collections.abc import Sequence
from decimal import Decimal

from patchwright.resolver.actions import Action
from patchwright.resolver.events import ReplyUsage
from patchwright.resolver.llm.model import AssistantMessage, ChatMessage, RawToolCall, Reply, ToolSpec
from patchwright.runtime.frozen_model import FrozenModel

ScriptLine = Reply | FrozenModel | Exception | Sequence[Action]
"""A reply, one action, several actions in one reply, or an error to raise."""


class ScriptedModel:
    """Answers the n-th request with the n-th line of its script, and stores the prompts in `requests`.

    Raises AssertionError if the script has no more lines.
    """

    def __init__(
        self,
        script: Sequence[ScriptLine],
        *,
        name: str = "scripted",
        usd: Decimal | None = None,
        sees: bool = False,
        window: int | None = None,
    ) -> None:
        self._script = tuple(script)
        self._usd = usd
        self.name = name
        self.supports_vision = sees
        self.context_window = window
        self.requests: list[tuple[ChatMessage, ...]] = []
        self.offered_tools: list[tuple[ToolSpec, ...]] = []

    async def reply(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> Reply:
        turn = len(self.requests)
        self.requests.append(tuple(messages))
        self.offered_tools.append(tuple(tools))
        assert turn < len(self._script), (
            f"the script has {len(self._script)} lines, and the model is asked again"
        )
        line = self._script[turn]
        match line:
            case Exception():
                raise line
            case Reply():
                return line
            case FrozenModel():
                return self._acting([line], turn)
            case _:
                return self._acting(line, turn)

    def _acting(self, actions: Sequence[FrozenModel], turn: int) -> Reply:
        calls = tuple(tool_call(f"call_{turn}_{n}", action) for n, action in enumerate(actions))
        usage = ReplyUsage(model=self.name, prompt_tokens=100, completion_tokens=10, usd=self._usd)
        return Reply(text="", tool_calls=calls, usage=usage)


def tool_call(id: str, action: FrozenModel) -> RawToolCall:
    """Returns the call that a model would make for this action."""
    kind = type(action).model_fields["kind"].default
    return RawToolCall(id=id, name=kind, arguments=action.model_dump_json(exclude={"kind"}))


def count_replies(messages: Sequence[ChatMessage]) -> int:
    """Returns the number of replies of the model in this conversation."""
    return sum(isinstance(message, AssistantMessage) for message in messages)
