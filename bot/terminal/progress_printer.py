"""Prints the progress of a run as lines, for terminals, pipes and CI logs."""

import textwrap
from collections.abc import Callable, Iterable, Iterator

from patchwright.bot.terminal.output import strip_control_chars, verdict_line
from patchwright.bot.terminal.style import NO_COLOR, Style
from patchwright.resolver.actions import Action
from patchwright.resolver.agent.messages import render_observation
from patchwright.resolver.descriptions import (
    LOST_WITH_SANDBOX,
    NEW_SANDBOX,
    describe_action,
    describe_observation,
    name_thread,
)
from patchwright.resolver.domain import Verdict
from patchwright.resolver.events import (
    AgentStopped,
    Entry,
    Event,
    Message,
    ModelReply,
    RunStarted,
    ToolResult,
    Trajectory,
    VerificationCompleted,
)
from patchwright.resolver.run_events import EnvironmentPrepared, NetworkAccess
from patchwright.resolver.run_task import get_task
from patchwright.resolver.tool_actions.control_actions import ProposePlan
from patchwright.resolver.viewer.call_blocks import is_failure
from patchwright.runtime.egress_policy import DENIAL_MESSAGES, ConnectionSummary
from patchwright.runtime.observations import EditResult
from patchwright.runtime.output_text import clip_line

MIN_WIDTH = 30  # Minimum width in cells. A terminal that is narrower wraps the lines itself.


EMPTY_TRAJECTORY = Trajectory()  # no entries
CHECKBOXES = {"open": "[ ]", "doing": "[>]", "done": "[x]", "dropped": "[-]"}
MAX_PROBLEM_CHARS = 800  # Maximum number of characters of the reason why a setup failed.
VERIFYING = "verifying the patch in clean sandboxes"
MAX_HOSTS = 5  # Only this many denied hosts are printed. The log contains all of them.


class ProgressPrinter:
    """Prints the entries of a run as lines. Each line starts with the working time since the start of the run, in
    seconds.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        width: int = 80,
        style: Style = NO_COLOR,
        *,
        verbose: bool = False,
        show_plan: bool = True,
        earlier: Trajectory = EMPTY_TRAJECTORY,
    ) -> None:
        """Stores the options.

        `width` is the number of cells per line. With `verbose`, reasoning, commands and output are printed in
        full. `show_plan` is False if the plan is shown elsewhere. `earlier` is the existing log of a run
        that is resumed.
        """
        self._write = write
        self._style = style
        self._verbose = verbose
        self._show_plan = show_plan
        self._trajectory = earlier
        self._steps = len(earlier.replies())
        self._has_plan = False
        self._unprinted_number = ""
        """The number of a step without text. The line of the step's first result shows it."""
        self._pending_calls: dict[str, str] = {}
        self.resize(width)

    def resize(self, width: int) -> None:
        """Sets the number of cells per line."""
        # The width that remains after the time at the start of a line.
        self._width = max(width, MIN_WIDTH) - 11

    def __call__(self, entry: Entry) -> None:
        self._trajectory = self._trajectory.with_entry(entry)
        time = self._style.dim(f"{self._trajectory.usage().seconds:6.1f} s")
        for line in self._entry_lines(entry):
            for part in self._wrap_line(line):
                self._write(f"{time}  {self._color_line(entry.event, strip_control_chars(part))}")

    def _wrap_line(self, line: str) -> list[str]:
        """Splits a line into lines that fit the width."""
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        return textwrap.wrap(line, self._width, subsequent_indent=indent[: self._width // 2]) or [line]

    def _color_line(self, event: Event, line: str) -> str:
        match event:
            case ModelReply():
                return self._style.bold(line)
            case ToolResult(observation=seen) if is_failure(seen):
                return self._style.yellow(line)
            case NetworkAccess() | AgentStopped(reason="input_required"):
                return self._style.yellow(line)
            case VerificationCompleted(verdict=Verdict(kind=kind)):
                return {"fixed": self._style.green, "regressed": self._style.red}.get(
                    kind, self._style.yellow
                )(line)
            case _:
                return line

    def _entry_lines(self, entry: Entry) -> list[str]:
        width = self._width
        match entry.event:
            case RunStarted() as event:
                return [
                    self._truncate(f"{name_thread(event)}: {event.thread.title}"),
                    self._truncate(f"model {event.model}, {event.sandbox} sandbox"),
                ]
            case EnvironmentPrepared() as event:
                return list(_setup_lines(event, width))
            case NetworkAccess(visits=visits):
                refused = list(_denial_lines(visits))
                rest = [f"and {len(refused) - MAX_HOSTS} more"] if len(refused) > MAX_HOSTS else []
                lines = [*refused[:MAX_HOSTS], *rest]
                return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="  ")]
            case Message(source="initial_prompt"):
                return ["prompt sent to the agent"]
            case Message(new_sandbox=True):
                return textwrap.wrap(f"{NEW_SANDBOX[0].lower()}{NEW_SANDBOX[1:]}; {LOST_WITH_SANDBOX}", width)
            case Message(source="resume", trigger_id=str()):
                return ["run resumed; its limits start over"]
            case Message(source="comment"):
                return ["comment sent to the agent"]
            case Message(source="nudge"):
                return ["the agent repeats itself; reminder sent"]
            case Message(source="verification"):
                return ["verification result sent to the agent, which continues"]
            case Message(source="program", text=text):
                return [self._truncate(f"message sent to the agent: {' '.join(text.split())}")]
            case ModelReply() as event:
                return self._reply_lines(event)
            case ToolResult(call_id=call, observation=observation):
                request = self._pending_calls.get(call, "the pending call")
                mark, self._unprinted_number = f"{self._unprinted_number:>4} ", ""
                if self._verbose:
                    first, *more = request.split("\n")
                    # People see the diff of an edit; the model reads only the changed lines.
                    if isinstance(observation, EditResult):
                        observation = observation.model_copy(update={"place": ""})
                    output = (f"       {line}" for line in render_observation(observation).split("\n"))
                    return [f"{mark}{first}", *(f"     {line}" for line in more), *output]
                answer = f"→ {describe_observation(observation)}"
                if len(request) + len(answer) <= width - 7:
                    return [f"{mark}{request}  {answer}"]
                return [f"{mark}{clip_line(request, width - 5)}", f"       {clip_line(answer, width - 7)}"]
            case AgentStopped(reason="input_required", detail=question):
                heading = "the agent proposes a plan:" if self._has_plan else "the agent asks:"
                return [heading, *textwrap.wrap(question, width)]
            case AgentStopped(reason=reason, detail=detail):
                description = detail[:1].lower() + detail[1:]
                text = description if reason == "finished" else f"the agent stopped ({reason}): {detail}"
                return textwrap.wrap(text, width) + [VERIFYING] * (get_task(self._trajectory) == "work")
            case VerificationCompleted(verdict=verdict):
                if verdict.partial:  # only the final verdict has this name
                    return ["the first tests have ended"]
                return textwrap.wrap(verdict_line(verdict), width)
            case _:
                return []

    def _reply_lines(self, event: ModelReply) -> list[str]:
        self._steps += 1
        self._has_plan = any(isinstance(call.action, ProposePlan) for call in event.calls)
        self._pending_calls = {
            call.id: _full_call(call.action) if self._verbose else describe_action(call.action)
            for call in event.calls
        }
        max_lines = None if self._verbose else 2
        lines = textwrap.wrap(event.thought, self._width - 5, max_lines=max_lines, placeholder=" …")
        plan = [item for call in event.calls for item in call.action.describe().checklist]
        self._unprinted_number = "" if lines else f"{self._steps}."
        numbered = zip((f"{self._steps}.", *("" for _ in lines)), lines, strict=False)
        return [
            *(f"{mark:>4} {line}" for mark, line in numbered),
            *(
                f"     {CHECKBOXES[item.status]} {self._truncate(item.text, 9)}"
                for item in (plan if self._show_plan else ())
            ),
        ]

    def _truncate(self, text: str, reserved: int = 0) -> str:
        return text if self._verbose else clip_line(text, self._width - reserved)


def _full_call(action: Action) -> str:
    """Returns a tool call as text, with all lines of the call's command or code."""
    call = action.describe()
    return call.title if call.code else clip_line(call.title)


def _denial_lines(visits: Iterable[ConnectionSummary]) -> Iterator[str]:
    """Yields why each connection was denied. Only the operator's terminal names an address that is not public, because
    it may belong to the operator's network.
    """
    for visit in visits:
        if visit.denied:
            message = DENIAL_MESSAGES[visit.denied]
            if visit.address:
                message = message.replace("an address that", f"{visit.address}, which")
            yield f"denied {visit.host}: {message}"


def _setup_lines(event: EnvironmentPrepared, width: int) -> Iterator[str]:
    if (base := event.base_image) and base.problem:
        yield f"no image for {base.language}; using the default image"
        yield from _problem_lines(base.problem, width)
    elif base:
        yield clip_line(f"sandboxes for {base.language} use {base.image}", width)
    if event.problem is not None:
        yield "repository setup failed; tests run without it"
        yield from _problem_lines(event.problem, width)
    elif event.commands:
        yield "repository setup restored from cache" if event.was_cached else "repository setup complete"
    for warning in event.warnings:
        yield "setup continued after a step failed"
        yield from _problem_lines(warning, width)


def _problem_lines(problem: str, width: int) -> list[str]:
    return textwrap.wrap(
        clip_line(problem, MAX_PROBLEM_CHARS), width, initial_indent="  ", subsequent_indent="  "
    )
