"""What a person at a terminal, a pipe or a CI log reads while a run goes on, and at its end."""

import json
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from bot.terminal.ink import COLOURLESS, Ink
from resolver.actions import Action, Plan
from resolver.circumstances import Connected, Prepared
from resolver.cost import named
from resolver.domain import Asked, Commented, Delivered, Outcome, Refused, Spent, Verdict
from resolver.events import Decided, Ended, Entry, Event, Judged, Observed, Started, Told
from resolver.render import result
from resolver.summary import came, clip, did
from resolver.viewer.calls import is_bad
from resolver.words.wording import brought, tally
from runtime.actions import RunPython, RunShell, UseBrowser
from runtime.egress.egress import WHY

NARROWEST = 30  # cells; on less, lines are broken by the terminal
BOX = {"open": "[ ]", "doing": "[>]", "done": "[x]", "dropped": "[-]"}
MOST_PROBLEM = 400  # characters of why a set-up failed
MOST_HOSTS = 5  # that the sandbox was refused; the log has them all


def plain(text: str) -> str:
    """Foreign text without control codes, so that it cannot move the cursor, recolour or retitle a terminal."""
    return "".join(
        char for char in text if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs")
    )


def folded(text: str, width: int = 78) -> str:
    """Text with its long lines folded between words; lists and tables, whose names are copied, are left alone."""
    return "\n".join(
        line if line.startswith(("- ", "|")) else textwrap.fill(line, width, break_long_words=False)
        for line in text.split("\n")
    )


class Narrator:
    """Tells a run's entries as lines, each with the seconds since it began."""

    def __init__(
        self,
        write: Callable[[str], object],
        width: int = 80,
        ink: Ink = COLOURLESS,
        *,
        verbose: bool = False,
        plans: bool = True,
        steps: int = 0,
    ) -> None:
        """`width`: cells of a line. `verbose`: thoughts, commands and what came of them are told whole.

        `plans` False: the agent's list is shown elsewhere. `steps`: of the model so far, where a run goes on.
        """
        self._write = write
        self._ink = ink
        self._verbose = verbose
        self._plans = plans
        self._began: Any = None
        self._steps = steps
        self._asked: dict[str, str] = {}
        self.resize(width)

    def resize(self, width: int) -> None:
        """From here on lines have so many cells."""
        self._width = max(width, NARROWEST) - 11  # of a line after its time

    def __call__(self, entry: Entry) -> None:
        self._began = self._began or entry.at
        time = self._ink.dim(f"{(entry.at - self._began).total_seconds():6.1f} s")
        for line in self._lines(entry):
            for part in self._broken(line):
                self._write(f"{time}  {self._inked(entry.event, plain(part))}")

    def _broken(self, line: str) -> list[str]:
        """A line that is wider than others, as several."""
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        return textwrap.wrap(line, self._width, subsequent_indent=indent[: self._width // 2]) or [line]

    def _inked(self, event: Event, line: str) -> str:
        match event:
            case Decided():
                return self._ink.bold(line)
            case Observed(observation=seen) if is_bad(seen):
                return self._ink.yellow(line)
            case Connected() | Ended(reason="asked"):
                return self._ink.yellow(line)
            case Judged(verdict=Verdict(kind=kind)):
                return {"fixed": self._ink.green, "regressed": self._ink.red}.get(kind, self._ink.yellow)(
                    line
                )
            case _:
                return line

    def _lines(self, entry: Entry) -> list[str]:
        width = self._width
        match entry.event:
            case Started() as event:
                return [
                    self._cut(f"{event.job.repo}#{event.thread.number}: {event.thread.title}"),
                    self._cut(f"model {event.model}, {event.sandbox} sandbox"),
                ]
            case Prepared() as event:
                return list(_prepared(event, width))
            case Connected(visits=visits):
                refused = [f"refused {each.host}: {WHY[each.refused]}" for each in visits if each.refused]
                more = [f"and {len(refused) - MOST_HOSTS} more"] if len(refused) > MOST_HOSTS else []
                lines = [*refused[:MOST_HOSTS], *more]
                return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="  ")]
            case Told(source="brief"):
                return ["the agent has its brief"]
            case Told(source="resume", by=str()):
                return ["the run goes on, and its limits count anew"]
            case Told(source="comment"):
                return ["the agent has the answer to its question"]
            case Told(source="nudge"):
                return ["the agent was told that it goes in circles"]
            case Told(source="proof"):
                return ["the agent was told what the proof showed, and goes on"]
            case Told(source="program"):
                return ["the agent was told something (see the log)"]
            case Decided() as event:
                return self._decided(event)
            case Observed(call=call, observation=observation):
                asked = self._asked.get(call, "the call that was under way")
                if self._verbose:
                    said = (f"       {line}" for line in result(observation).split("\n"))
                    return [*(f"     {line}" for line in asked.split("\n")), *said]
                answer = f"→ {came(observation)}"
                if len(asked) + len(answer) <= width - 7:
                    return [f"     {asked}  {answer}"]
                return [f"     {clip(asked, width - 5)}", f"       {clip(answer, width - 7)}"]
            case Ended(reason="asked", detail=question):
                return ["the agent asks:", *textwrap.wrap(question, width)]
            case Ended(reason=reason, detail=detail):
                how = detail[:1].lower() + detail[1:]
                ended = how if reason == "finished" else f"the agent's work ended ({reason}): {detail}"
                return [*textwrap.wrap(ended, width), "proving the patch in clean sandboxes"]
            case Judged(verdict=verdict):
                about = "verdict on the tests that were run first" if verdict.partial else "verdict"
                return textwrap.wrap(f"{about}: {verdict.kind}. {verdict.reason}", width)
            case _:
                return []

    def _decided(self, event: Decided) -> list[str]:
        self._steps += 1
        self._asked = {
            call.id: _code(call.action) if self._verbose else did(call.action) for call in event.calls
        }
        few = None if self._verbose else 2
        lines = textwrap.wrap(event.thought, self._width - 5, max_lines=few, placeholder=" …")
        plans = [call.action for call in event.calls if isinstance(call.action, Plan)] if self._plans else []
        told = zip((f"{self._steps}.", *("" for _ in lines)), lines, strict=False)
        return [
            *(f"{mark:>4} {line}" for mark, line in told),
            *(f"     {BOX[item.state]} {self._cut(item.text, 9)}" for each in plans for item in each.items),
        ]

    def _cut(self, text: str, less: int = 0) -> str:
        return text if self._verbose else clip(text, self._width - less)


def _code(action: Action) -> str:
    """A call with all of its lines."""
    match action:
        case RunShell(command=code):
            return f"$ {code}"
        case RunPython(code=code):
            return f">>> {code}"
        case UseBrowser(code=code):
            return f"in the browser: {code}"
        case _:
            return did(action)


def _prepared(event: Prepared, width: int) -> Iterator[str]:
    if (chosen := event.chosen) and chosen.problem:
        yield f"the image for {chosen.language} could not be had: the usual one stands in"
        yield from _why(chosen.problem, width)
    elif chosen:
        yield clip(f"the sandboxes for {chosen.language} are on {chosen.image}", width)
    if event.problem is not None:
        yield "the repository's set-up was not done: its tests run without it"
        yield from _why(event.problem, width)
    elif event.commands:
        yield "the repository's set-up was kept" if event.warm else "the repository's set-up is done"
    for missed in event.missed:
        yield "it went on without something that its developers use"
        yield from _why(missed, width)


def _why(problem: str, width: int) -> list[str]:
    return textwrap.wrap(clip(problem, MOST_PROBLEM), width, initial_indent="  ", subsequent_indent="  ")


def outcome_json(
    run: str, outcome: Outcome | None, verdict: Verdict | None, spent: Spent, **more: Any
) -> dict[str, Any]:
    """The outcome as one JSON object; absent things are null."""
    url = outcome.url if isinstance(outcome, Delivered) else None
    branch = outcome.branch if isinstance(outcome, Delivered | Commented) else None
    reason = (
        outcome.explanation
        if isinstance(outcome, Refused)
        else outcome.reason
        if isinstance(outcome, Commented)
        else None
    )
    return {
        "outcome": outcome.kind if outcome else None,
        "verdict": verdict.kind if verdict else None,
        "reason": reason or (verdict.reason if verdict else None),
        "pull_request": url,
        "draft": outcome.draft if isinstance(outcome, Delivered) else None,
        "comment": (outcome.url or None) if isinstance(outcome, Commented | Asked) else None,
        "question": outcome.question if isinstance(outcome, Asked) else None,
        "branch": branch,
        "newly_passing": list(verdict.newly_passing) if verdict else [],
        "newly_failing": list(verdict.newly_failing) if verdict else [],
        "cost_usd": None,
        "cost_usd_at_least": None,
        **named("cost_usd", spent.cost),
        "tokens": spent.tokens,
        "steps": spent.steps,
        "seconds": round(spent.seconds, 1),
        "run": run,
        **more,
    }


def print_json(value: dict[str, Any]) -> None:
    """One JSON object and nothing else."""
    sys.stdout.write(json.dumps(value, ensure_ascii=True) + "\n")


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def tests_table(verdict: Verdict) -> str:
    """The test runs before and after, as a small table for a terminal."""
    if verdict.before is None or verdict.after is None:
        return "no test run could be had"
    rows = [("", "before", "after")]
    if verdict.before.results or verdict.after.results:
        rows.append(("passed", str(verdict.before.passed), str(verdict.after.passed)))
        rows.append(("failed", str(verdict.before.failed), str(verdict.after.failed)))
    else:
        rows.append(("exit code", str(verdict.before.exit_code), str(verdict.after.exit_code)))
    table = "\n".join(f"  {name:10} {old:>7} {new:>7}" for name, old, new in rows)
    if (tried := verdict.on_old_code) and (now := verdict.after.results):
        passing = tally(now[test] for test in tried if test in now)
        table += f"\n  {brought(verdict)}s: {tally(tried.values())} on the old code; now {passing}"
    lists = [
        ("now passing", verdict.newly_passing),
        ("now failing", verdict.newly_failing),
        ("flaky", verdict.flaky),
    ]
    return "\n".join([table, *(f"  {title}: {plain(test)}" for title, tests in lists for test in tests[:10])])
