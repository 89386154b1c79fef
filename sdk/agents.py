"""Agents as frozen values: an agent that a language model drives, and agents of your own."""

from abc import abstractmethod
from collections.abc import Awaitable, Generator, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr, SerializeAsAny, field_validator

from patchwright.runtime.frozen_model import FrozenModel
from patchwright.sdk.llm import LLM
from patchwright.sdk.plugins import Extensible
from patchwright.sdk.tools import DEFAULT_TOOLS, resolve_tool_name

if TYPE_CHECKING:
    from patchwright.resolver.actions import AnyObservation
    from patchwright.resolver.domain import Thread
    from patchwright.resolver.events import Event, Trajectory


Confirm = Literal["never", "risky", "always"]


class BaseAgent(Extensible):
    """What every agent has: its tools and its limits. The limits apply to each call of `Conversation.run`."""

    entry_point_group: ClassVar[str] = "patchwright.agents"

    tools: tuple[str, ...] = DEFAULT_TOOLS
    """Names of the tools. You may also pass functions: see `tool`."""
    max_steps: int = Field(default=100, ge=1)
    """Maximum number of replies."""
    max_seconds: float = Field(default=3600.0, gt=0)
    """Maximum working time in seconds."""
    max_usd: float = Field(default=2.0, gt=0)
    """Maximum cost in dollars. Models without a known price do not count."""

    confirm: Confirm = "never"
    """Calls that wait for `Conversation.approve`: none, those with a high risk, or all calls in the workspace."""

    @field_validator("tools", mode="before")
    @classmethod
    def _find_tools(cls, tools: Any) -> tuple[str, ...]:
        if isinstance(tools, str) or not isinstance(tools, Sequence):
            raise ValueError("pass a list of tools")
        return tuple(dict.fromkeys(resolve_tool_name(choice) for choice in tools))

    def with_tools(self, *tools: Any) -> Self:
        """Returns this agent with these tools in addition."""
        return self.model_copy(update={"tools": type(self)._find_tools((*self.tools, *tools))})


class Agent(BaseAgent):
    """An agent that a language model drives."""

    llm: SerializeAsAny[LLM]
    system_prompt: str | None = None
    """Replaces the system prompt."""
    instructions: str = ""
    """Text at the end of the system prompt, such as rules of your project."""
    max_context_tokens: int | None = Field(default=None, ge=1000)
    """When a conversation is longer, its older part is summarized. By default, this depends on the model."""


def default_agent(llm: LLM | str, **fields: Any) -> Agent:
    """Returns an agent of a model or its name with shell, editor, code search, Python session, browser and `finish`."""
    return Agent(llm=LLM(model=llm) if isinstance(llm, str) else llm, **fields)


class ToolRequest(FrozenModel):
    """A call of a tool that an agent of your own makes."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class AgentState:
    """What an agent of your own sees before a step. Read-only."""

    def __init__(self, trajectory: "Trajectory") -> None:
        self._trajectory = trajectory

    @property
    def events(self) -> "tuple[Event, ...]":
        """All events so far."""
        return tuple(self._trajectory)

    @property
    def steps(self) -> int:
        """Number of steps of the whole conversation so far."""
        return len(self._trajectory.replies())

    @property
    def issue(self) -> "Thread | None":
        """The issue or pull request that a run of the bot works on; None in a conversation."""
        return self._trajectory.run_started.thread if self._trajectory.run_started else None

    @property
    def messages(self) -> tuple[str, ...]:
        """The texts that people sent, in order. In a run of the bot, the first one is the prompt with the issue."""
        return tuple(
            event.text
            for event in self._trajectory
            if event.kind == "message" and event.source in ("initial_prompt", "comment")
        )

    @property
    def is_new_turn(self) -> bool:
        """True if there was no step since the latest message of a person."""
        for event in reversed(self.events):
            if event.kind == "model_reply":
                return False
            if event.kind == "message" and event.source in ("initial_prompt", "comment"):
                return True
        return True

    @property
    def last_output(self) -> str:
        """The text of the latest result as a language model reads it, also that of a failure; empty before the first
        call.
        """
        from patchwright.resolver.agent.messages import render_observation

        return "" if self.last_result is None else render_observation(self.last_result)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The text of the results of each step, oldest first."""
        from patchwright.resolver.agent.messages import render_observation

        results = {event.call_id: event.observation for event in self.events if event.kind == "tool_result"}
        return tuple(
            "\n".join(render_observation(results[call.id]) for call in reply.calls if call.id in results)
            for reply in self._trajectory.replies()
        )

    @property
    def last_result(self) -> "AnyObservation | None":
        """The result of the latest call; None before the first one."""
        events = reversed(self.events)
        return next((event.observation for event in events if event.kind == "tool_result"), None)


Step = ToolRequest | Sequence[ToolRequest] | str
"""What an agent does next: calls of tools, or a text that ends its turn."""


class CustomAgent(BaseAgent):
    """Base class of agents that are written in Python. Subclasses implement `step`, and `reset` if they need it.

    The agent runs with the same limits, log and resume as an agent that a language model drives. After a crash, a new
    process calls `reset`, and then `step` with the state that the log contains.
    """

    def reset(self) -> None:
        """Called once before the first step in this process."""

    @abstractmethod
    def step(self, state: AgentState) -> Step | Awaitable[Step]:
        """Returns what to do next."""


class GeneratorAgent(CustomAgent):
    """An agent that is a generator function of an installed package.

    The function takes the AgentState. It yields calls, gets the text of their results, and returns what it did. After a
    crash, it runs again from its start, and gets the results that the log contains. So it must yield the same calls
    for the same results.
    """

    function: str
    """Name of the entry point in the group `patchwright.agents`."""
    _generator: Generator[ToolRequest | Sequence[ToolRequest], str, str | None] | None = PrivateAttr(None)
    _steps: int = PrivateAttr(0)
    _summary: str | None = PrivateAttr(None)

    def reset(self) -> None:
        self._generator, self._steps, self._summary = None, 0, None

    def step(self, state: AgentState) -> Step:
        outputs = state.outputs
        if self._generator is None:
            (entry,) = entry_points(group=self.entry_point_group, name=self.function)
            self._generator = entry.load()(state)
        while self._summary is None:
            try:
                request = (
                    self._generator.send(outputs[self._steps - 1]) if self._steps else next(self._generator)
                )
            except StopIteration as end:
                self._summary = end.value or "Done."
                break
            self._steps += 1
            if self._steps > len(outputs):
                return request
        return self._summary
