"""A model that says what it was told to say: for tests at the seam."""

from collections.abc import Sequence
from decimal import Decimal

from resolver.actions import Action
from resolver.events import Usage
from resolver.llm.model import FromModel, Message, Reply, ToolCall, ToolSpec
from runtime.frozen import Frozen

Line = Reply | Frozen | Exception | Sequence[Action]
"""A reply, one action, several actions in one reply, or an error to raise."""


class Scripted:
    """Answers the n-th request with the n-th line of its script; `asked` is what it was sent.

    A script that has run out is an error of the test: AssertionError.
    """

    def __init__(
        self,
        script: Sequence[Line],
        *,
        name: str = "scripted",
        usd: Decimal | None = None,
        sees: bool = False,
        window: int | None = None,
    ) -> None:
        self._script = tuple(script)
        self._usd = usd
        self.name = name
        self.sees = sees
        self.window = window
        self.asked: list[tuple[Message, ...]] = []

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        turn = len(self.asked)
        self.asked.append(tuple(messages))
        assert turn < len(self._script), (
            f"the script has {len(self._script)} lines, and the model is asked again"
        )
        line = self._script[turn]
        match line:
            case Exception():
                raise line
            case Reply():
                return line
            case Frozen():
                return self._acting([line], turn)
            case _:
                return self._acting(line, turn)

    def _acting(self, actions: Sequence[Frozen], turn: int) -> Reply:
        calls = tuple(call(f"call_{turn}_{n}", action) for n, action in enumerate(actions))
        usage = Usage(model=self.name, prompt_tokens=100, completion_tokens=10, usd=self._usd)
        return Reply(text="", calls=calls, usage=usage)


def call(id: str, action: Frozen) -> ToolCall:
    """The call that a model would make for this action."""
    kind = type(action).model_fields["kind"].default
    return ToolCall(id=id, name=kind, arguments=action.model_dump_json(exclude={"kind"}))


def turn_of(messages: Sequence[Message]) -> int:
    """How many replies the model has given in this conversation."""
    return sum(isinstance(message, FromModel) for message in messages)
