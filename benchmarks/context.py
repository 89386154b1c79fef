"""What the conversation of a 50-step run costs, its prefix cached at a tenth, and how much of it ever changes.

Fifty shell commands with their outputs, of the sizes that reading and testing code brings. Tokens are bytes by four,
for us and for the peer alike. Floor, in the same run: commands and outputs alone, with no word around them. Peer:
mini-swe-agent 2.4.6 with its `mini.yaml`, given the same commands and outputs, none of which it had to cut; measured
by the messages and the tool that its agent hands to its model.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from benchmarks.measure import Result, report
from resolver import prose
from resolver.brief import brief
from resolver.domain import Issue, User
from resolver.events import Call, Decided, Entry, Event, Observed, Prompted, Told, Trajectory, Usage
from resolver.llm.chat import written
from resolver.llm.model import Message
from resolver.render import messages
from resolver.replay import as_sent
from resolver.tools.sandboxed import sandbox_tools
from resolver.tools.talk import talk_tools
from resolver.tools.tool import Tools
from runtime.actions import RunShell
from runtime.observations import Ran, Viewed

STEPS = 50
SIZES = (200, 1_500, 4_000, 800, 9_000)  # characters of the outputs, in turn
CACHED = 0.1  # of the price of a token that was sent before
BYTES_PER_TOKEN = 4
PEER = 163_991  # tokens; see above
ISSUE = "The parser drops the last field of a line that ends with a separator.\n" * 10


def command(step: int) -> str:
    return f"sed -n '{step * 40 + 1},{step * 40 + 120}p' src/package/module_{step % 7}.py"


def output(step: int) -> str:
    """Something like code, the same each time."""
    size, lines, length = SIZES[step % len(SIZES)], [], 0
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
    """A run with these steps, as our agent would log it."""
    tools = Tools((*sandbox_tools(_NoSandbox()), *talk_tools()))
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
    first = brief(
        issue, "", root="/workspace", base="0" * 40, files=files, machine="python3: Python 3.11.2",
        suite=None, before=None,
    )  # fmt: skip
    events: list[Event] = [
        Prompted(system=prose.system("/workspace", "/tmp/scratch", "docker"), tools=as_sent(tools.specs)),
        Told(text=prose.brief(first), source="brief"),
    ]
    for step in range(STEPS):
        id = f"call_{step}"
        call = Call(id=id, action=RunShell(command=command(step)))
        events.append(Decided(thought=f"Step {step}.", calls=(call,), usage=Usage(model="none")))
        ran = Ran(output=output(step), exit_code=0, cwd="/workspace", seconds=0.1)
        events.append(Observed(call=id, observation=ran))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Trajectory(tuple(Entry(seq=n, at=now, event=event) for n, event in enumerate(events)))


class _NoSandbox:
    """Its tools are only described."""

    root, scratch = "/workspace", "/tmp/scratch"

    async def act(self, action: object) -> Viewed:
        raise NotImplementedError


def billed(prompts: Sequence[str]) -> float:
    """Tokens of all prompts, what a prompt has in common with the one before at a tenth."""
    total, before = 0.0, ""
    for prompt in prompts:
        same = len(before) if prompt.startswith(before) else 0
        total += (CACHED * same + len(prompt) - same) / BYTES_PER_TOKEN
        before = prompt
    return total


def measure() -> list[Result]:
    whole = run()
    tools = json.dumps(next(event.tools for event in whole if isinstance(event, Prompted)))
    asked = [messages(Trajectory(whole.entries[: 2 + 2 * step])) for step in range(STEPS + 1)]
    bare = ["".join(command(n) + output(n) for n in range(step)) for step in range(STEPS + 1)]
    return [
        Result(
            name="prompt tokens billed for 50 steps",
            value=billed([tools + _text(one) for one in asked]),
            unit="tokens",
            floor=billed(bare),
            peers={"mini-swe-agent": PEER},
            target=PEER,
        ),
        Result(
            name="prompt bytes that change between two steps",
            value=max(_changed(one, later) for one, later in pairwise(asked)),
            unit="B",
            floor=0,
            target=0,
        ),
    ]


def _text(sent: Sequence[Message]) -> str:
    """What a model reads of it: not the JSON that carries it."""
    return "".join(map(read, written(sent, reader="none", sees=False)))


def read(message: dict[str, Any]) -> str:
    """The words of a message in the form of OpenAI's chat completions."""
    calls = (call["function"] for call in message.get("tool_calls") or ())
    said = (call["name"] + call["arguments"] for call in calls)
    return "".join((message["role"], message.get("content") or "", *said))


def _changed(one: Sequence[Message], later: Sequence[Message]) -> int:
    """Bytes of what was sent and is not sent again at its place."""
    pairs = zip(one, later, strict=False)
    return sum(len(before.model_dump_json()) for before, after in pairs if before != after)


if __name__ == "__main__":
    report(measure())
