"""Measures what the conversation of a 50-step run costs, with its cached prefix at a tenth, and how much of
it ever changes.

Fifty shell commands with outputs of the sizes that reading and testing code produces. Tokens are bytes
divided by four, for us and for the peer. Floor, in the same run: commands and outputs alone. Peer:
mini-swe-agent 2.4.6 with its `mini.yaml` and the same commands and outputs, all short enough that it
truncates none. Its figure is the size of the messages and the tool description that it sends to its model.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from benchmarks.measure import Result, report
from patchwright.resolver.agent.messages import build_messages
from patchwright.resolver.domain import Issue, User
from patchwright.resolver.events import (
    Entry,
    Event,
    Message,
    ModelReply,
    ReplyUsage,
    SystemPrompt,
    ToolCall,
    ToolResult,
    Trajectory,
)
from patchwright.resolver.llm.chat_completions import to_chat_messages
from patchwright.resolver.llm.model import ChatMessage
from patchwright.resolver.llm.prompt_fingerprint import tool_schemas
from patchwright.resolver.prompts.initial_prompt import (
    PreparedSandbox,
    RepositoryFacts,
    RequestToAgent,
    build_initial_prompt,
    render_initial_prompt,
)
from patchwright.resolver.prompts.system_prompt import SandboxDescription, render_system_prompt
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.resolver.tools.tool_choice import ALWAYS_OFFERED
from patchwright.runtime.actions import RunShell
from patchwright.runtime.observations import ShellResult, TextResult

STEPS = 50
SIZES = (200, 1_500, 4_000, 800, 9_000)  # characters of the outputs, in turn
CACHED = 0.1  # share of the price for a token that was sent before
BYTES_PER_TOKEN = 4
PEER = 163_991  # tokens; see above
ISSUE = "The parser drops the last field of a line that ends with a separator.\n" * 10


def command(step: int) -> str:
    return f"sed -n '{step * 40 + 1},{step * 40 + 120}p' src/package/module_{step % 7}.py"


def output(step: int) -> str:
    """Returns text that looks like code, the same each time."""
    size, length = SIZES[step % len(SIZES)], 0
    lines: list[str] = []
    while length < size:
        n = len(lines)
        line = (
            f"    def method_{step}_{n}(self, value: int) -> str:",
            f'        """Field {n} of the line, or "" when there is none."""',
            f"        return self._fields[{n}].strip() if len(self._fields) > {n} else ''",
            "",
        )[n % 4]
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines) + "\n"


def run() -> Trajectory:
    """Returns a run with these steps, as our agent would log it."""
    tools = ToolRegistry((*build_sandbox_tools(_NoSandbox()), *build_control_tools()), ALWAYS_OFFERED)
    author = User(id=1, login="reporter")
    issue = Issue(
        number=1,
        title="Fields get lost",
        body=ISSUE,
        author=author,
        trusted=False,
        open=True,
        url="https://x/1",
    )
    files = tuple(f"src/package/module_{n}.py" for n in range(7))
    first = build_initial_prompt(
        issue,
        RequestToAgent(),
        RepositoryFacts("0" * 40, files),
        PreparedSandbox("/workspace", sandbox_facts="python3: Python 3.11.2"),
    )
    events: list[Event] = [
        SystemPrompt(
            text=render_system_prompt(SandboxDescription("/workspace", "/tmp/scratch", "docker")),
            tools=tool_schemas(tools.specs),
        ),
        Message(text=render_initial_prompt(first), source="initial_prompt"),
    ]
    for step in range(STEPS):
        id = f"call_{step}"
        call = ToolCall(id=id, action=RunShell(command=command(step)))
        events.append(ModelReply(thought=f"Step {step}.", calls=(call,), usage=ReplyUsage(model="none")))
        ran = ShellResult(output=output(step), exit_code=0, cwd="/workspace", seconds=0.1)
        events.append(ToolResult(call_id=id, observation=ran))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Trajectory(tuple(Entry(seq=n, timestamp=now, event=event) for n, event in enumerate(events)))


class _NoSandbox:
    """A sandbox that only describes its tools."""

    root, scratch = "/workspace", "/tmp/scratch"

    async def act(self, action: object) -> TextResult:
        raise NotImplementedError


def billed(prompts: Sequence[str]) -> float:
    """Returns the tokens of all prompts, counting the common prefix with the previous prompt at a tenth."""
    total, before = 0.0, ""
    for prompt in prompts:
        same = len(before) if prompt.startswith(before) else 0
        total += (CACHED * same + len(prompt) - same) / BYTES_PER_TOKEN
        before = prompt
    return total


def measure() -> list[Result]:
    trajectory = run()
    tools = json.dumps(next(event.tools for event in trajectory if isinstance(event, SystemPrompt)))
    prompts = [build_messages(Trajectory(trajectory.entries[: 2 + 2 * step])) for step in range(STEPS + 1)]
    bare = ["".join(command(n) + output(n) for n in range(step)) for step in range(STEPS + 1)]
    return [
        Result(
            name="prompt tokens billed for 50 steps",
            value=billed([tools + _text(one) for one in prompts]),
            unit="tokens",
            floor=billed(bare),
            peers={"mini-swe-agent": PEER},
            target=PEER,
        ),
        Result(
            name="prompt bytes that change between two steps",
            value=max(_changed(one, later) for one, later in pairwise(prompts)),
            unit="B",
            floor=0,
            target=0,
        ),
    ]


def _text(sent: Sequence[ChatMessage]) -> str:
    """Returns the text that a model reads, without the JSON around it."""
    return "".join(map(read, to_chat_messages(sent, model_name="none", supports_vision=False)))


def read(message: dict[str, Any]) -> str:
    """Returns the text of a message in the format of OpenAI's chat completions."""
    calls = (call["function"] for call in message.get("tool_calls") or ())
    call_texts = (call["name"] + call["arguments"] for call in calls)
    return "".join((message["role"], message.get("content") or "", *call_texts))


def _changed(one: Sequence[ChatMessage], later: Sequence[ChatMessage]) -> int:
    """Returns the bytes that were sent and are not sent again at the same place."""
    pairs = zip(one, later, strict=False)
    return sum(len(before.model_dump_json()) for before, after in pairs if before != after)


if __name__ == "__main__":
    report(measure())
