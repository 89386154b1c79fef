"""The live display of a run: in place, in every window size, with any text."""

import asyncio
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TextIO

import pytest

from patchwright.bot.terminal.live_display import EMPTY_TRAJECTORY, open_display
from patchwright.bot.terminal.style import detect_style, display_width, truncate
from patchwright.resolver.domain import JobId
from patchwright.resolver.events import AgentStopped, Entry, Event, Message, Trajectory
from patchwright.resolver.run_events import BaselinePending
from patchwright.resolver.run_log import Listener
from patchwright.resolver.tool_actions.control_actions import Plan
from patchwright.runtime.actions import RunShell
from patchwright.runtime.tool_action import PlanItem
from tests.bot.screens import Screen, open_screen
from tests.resolver.sample_runs import full_run, model_reply, shell_result, started, step

XTERM = {"TERM": "xterm-256color"}


class DisplayedRun:
    """A run shown on a screen."""

    def __init__(self, screen: Screen, stream: TextIO, tell: Listener) -> None:
        self.screen, self.stream, self._tell, self._told = screen, stream, tell, 0

    def add(self, *events: Event, ago: float = 0.0) -> None:
        """Adds these events, with a timestamp this number of seconds ago."""
        for event in events:
            at = datetime.now(UTC) - timedelta(seconds=ago)
            self._tell(Entry(seq=self._told, timestamp=at, event=event))
            self._told += 1


@asynccontextmanager
async def displayed_run(
    columns: int = 80,
    lines: int = 24,
    environ: Mapping[str, str] = XTERM,
    *,
    verbose: bool = False,
    earlier: Trajectory = EMPTY_TRAJECTORY,
) -> AsyncIterator[DisplayedRun]:
    with open_screen(columns, lines) as (screen, stream):
        async with open_display(stream, environ, verbose=verbose, earlier=earlier) as tell:
            yield DisplayedRun(screen, stream, tell)
        assert screen.cursor[1] == 0  # The shell prompt starts in the first column.


def plan(*states: str) -> Plan:
    return Plan(items=tuple(PlanItem(text=f"Point {n}", status=state) for n, state in enumerate(states, 1)))  # type: ignore[arg-type]


def frame(screen: Screen) -> list[str]:
    """Returns the frame below the printed lines."""
    lines = screen.lines
    return lines[len(lines) - lines[::-1].index("") :]


async def test_plan_step_time_and_cost_are_below_the_printed_lines() -> None:
    async with displayed_run() as run:
        run.add(*list(full_run())[:3], ago=75)
        run.add(model_reply("a", plan("done", "doing", "open")), ago=12)
        run.add(
            *step("b", RunShell(command="pytest -q"), shell_result("1 failed", 1), "Reproduce it."), ago=12
        )
        run.add(model_reply("c", RunShell(command="pytest -x tests"), thought="Once more."), ago=11)
        await run.screen.until(r"> \$ pytest -x tests  1[1-9] s")
        assert run.screen.lines[0] == "   0.0 s  acme/calc#7: add() subtracts"
        assert "  63.0 s       $ pytest -q  → exit code 1: 1 failed" in run.screen.lines
        title, *points, _, figures = frame(run.screen)
        assert title == "acme/calc#7 add() subtracts"
        assert points == ["  [x] Point 1", "  [>] Point 2", "  [ ] Point 3"]
        assert figures.startswith("  1 min 1") and " · $0.0300 of $2.00 · 3,150 tokens · 3 of 100" in figures
        assert run.screen.colors("[x] Point 1") == {"green"}
        assert "bold" in run.screen.colors("Once more.") and run.screen.colors("$ pytest -q") == {"brown"}


def stopped_run(ago: float) -> Trajectory:
    """Returns a run that worked for 30 seconds and stopped this number of seconds ago."""
    events = (started(), *step("a", RunShell(command="make"), shell_result("")))
    stopped = AgentStopped(reason="limit", detail="The limit on model replies is reached (1).")
    begin = datetime.now(UTC) - timedelta(seconds=ago + 30)
    entries = [Entry(seq=n, timestamp=begin, event=event) for n, event in enumerate(events)]
    end = Entry(seq=len(entries), timestamp=begin + timedelta(seconds=30), event=stopped)
    return Trajectory((*entries, end))


async def test_a_continued_run_goes_on_counting_its_time_and_steps() -> None:
    async with displayed_run(earlier=stopped_run(ago=7200)) as run:
        await run.screen.until(r"> starting  0 s")
        assert re.match(
            r"  3\d s · ", frame(run.screen)[-1]
        )  # without the two hours for which it was stopped
        run.add(Message(text="Go on.", source="resume", trigger_id=JobId("again")))
        run.add(Message(text="Set up again.", source="resume", new_sandbox=True))
        run.add(*step("b", RunShell(command="make test"), shell_result(""), thought=""))
        text = "\n".join(run.screen.lines)
        assert (
            "  30.0 s  run resumed; its limits start over\n  30.0 s  the run continued in a new sandbox; "
            in text
        )
        assert "  30.0 s    2. $ make test  → " in text  # a step without text has its number, too
        assert re.match(r"  3\d s · ", frame(run.screen)[-1])


async def test_no_cost_is_shown_before_the_first_reply() -> None:
    async with displayed_run() as run:
        run.add(*list(full_run())[:3], ago=75)
        await run.screen.until("0 of 100 steps")
        assert "$" not in "".join(run.screen.lines)


async def test_a_partly_known_cost_is_marked() -> None:
    async with displayed_run() as run:
        run.add(*list(full_run())[:3], ago=75)
        reply = model_reply("a", plan("doing"))
        unpriced = reply.usage.model_copy(update={"usd": None})
        run.add(reply, model_reply("b").model_copy(update={"usage": unpriced}), ago=12)
        await run.screen.until(r" · at least \$0\.0\d+ of \$2\.00 · ")


async def test_printed_lines_stay_and_the_frame_is_erased_at_the_end() -> None:
    with open_screen() as (screen, stream):
        async with open_display(stream, XTERM) as tell:
            for entry in full_run().entries:
                tell(entry)
            assert "[x] Reproduce it" in "\n".join(screen.lines)
        assert screen.lines[-1].endswith("verdict: fixed. 1 test failed before and passes now.")
        assert screen.cursor == (len(screen.lines), 0)
        assert "[x]" not in "\n".join(screen.scrolled) and screen.colors("verdict") == {"green"}


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ([started()], "preparing the sandbox"),
        ([started(), Message(text="Fix it.", source="initial_prompt")], "waiting for vendor/model-1"),
        ([started(), model_reply("a", RunShell(command="make"))], r"\$ make"),
        ([started(), *step("a", RunShell(command="make"), shell_result(""))], "waiting for vendor/model-1"),
        (
            [started(), model_reply("a"), AgentStopped(reason="finished", detail="Done.")],
            "verifying the patch in clean sandboxes",
        ),
        ([started(), model_reply("a"), AgentStopped(reason="input_required", detail="Which?")], "finishing"),
        (list(full_run()), "finishing"),
    ],
)  # fmt: skip
async def test_the_current_activity_is_shown(events: Sequence[Event], what: str) -> None:
    async with displayed_run(lines=40) as run:
        run.add(*events)
        await run.screen.until(rf"> {what}  \d+ s")


async def test_the_baseline_tests_are_shown_while_they_run() -> None:
    async with displayed_run() as run:
        run.add(
            started(),
            BaselinePending(),
            Message(text="Whatever an operator's template says.", source="initial_prompt"),
        )
        await run.screen.until("baseline tests running$")
        run.add(Message(text="All pass.", source="baseline"))
        await run.screen.until(lambda screen: "baseline tests" not in "\n".join(screen.lines))


@pytest.mark.slow
@pytest.mark.parametrize(("columns", "lines"), [(40, 12), (20, 6), (200, 50), (80, 3)])
async def test_the_frame_fits_every_window(columns: int, lines: int) -> None:
    async with displayed_run(columns, lines) as run:
        run.add(*list(full_run())[:3], model_reply("a", plan(*["done"] * 14, "doing", *["open"] * 15)))
        for n in range(30):
            run.add(
                *step(f"b{n}", RunShell(command="echo " + "long " * 30), shell_result("much " * 50), "Hm.")
            )
        run.add(model_reply("c", RunShell(command="sleep " + "9" * 200)))
        await run.screen.until(r"…  \d+ s")
        result = run.screen.lines
        assert all(display_width(line) <= columns for line in result)
        assert "[>] Point 15" in "\n".join(result) or lines < 8
        run.stream.flush()
        assert "\n".join(run.screen.scrolled).count("> $ sleep 999") == 1
        assert "\n".join(run.screen.scrolled).count("Point 15") <= 1


async def test_a_resized_window_is_redrawn() -> None:
    async with displayed_run() as run:
        run.add(*list(full_run())[:3], model_reply("a", plan("doing", "open")))
        run.add(model_reply("b", RunShell(command="sleep 1000 && " + "x" * 100)))
        await run.screen.until("> .*…  ")
        for columns in (40, 100, 30, 80):
            run.screen.resize(columns)
            await run.screen.until(
                lambda screen, columns=columns: any(  # type: ignore[misc]
                    line.startswith("> $") and columns - 4 <= len(line) < columns for line in screen.lines
                )
            )
            assert "\n".join(run.screen.lines).count("acme/calc#7 add") == 1


async def test_untrusted_text_cannot_control_the_frame() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\u2066\r\n\x08\x00\x7f" + "界" * 200 + "e\u0301" * 500
    async with displayed_run(60, 16) as run:
        run.add(*list(full_run())[1:3], started(title=evil))
        items = (PlanItem(text=evil[:280], status="doing"),)
        run.add(*step("a", Plan(items=items), shell_result("\x1b[31m" * 1000, 1), evil))
        run.add(model_reply("b", RunShell(command=evil + "\n" * 3000)))
        await run.screen.until(r"> \$ .*evil 界+…  \d+ s")
        frame_lines = frame(run.screen)
        assert len(frame_lines) == 4 and all(display_width(line) <= 60 for line in frame_lines)
        assert b"\x1b[2J" not in run.screen.raw and b"\x1b]0" not in run.screen.raw
        assert "\u202e".encode() not in run.screen.raw and b"\x1b[31m\x1b[31m" not in run.screen.raw


async def test_other_output_appears_above_the_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_screen() as (screen, stream):
        monkeypatch.setattr(sys, "stderr", stream)
        handler = logging.StreamHandler(stream)
        monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
        async with open_display(stream, XTERM) as tell:
            tell(Entry(seq=0, timestamp=datetime.now(UTC), event=started()))
            print("NOTICE: \x1b[2Jno engine", file=sys.stderr)
            await asyncio.to_thread(logging.getLogger("library").warning, "it is slow")
            print("no end", end="", file=sys.stderr)
            await screen.until("it is slow")
            assert screen.lines[2:4] == ["NOTICE: [2Jno engine", "it is slow"]
            assert frame(screen)[0] == "acme/calc#7 add() subtracts"
        assert screen.lines[2:] == ["NOTICE: [2Jno engine", "it is slow", "no end"]
        assert sys.stderr is stream and handler.stream is stream


@pytest.mark.parametrize(
    "environ", [{"TERM": "dumb"}, {}, {"TERM": "xterm", "CI": "true"}, {"TERM": "xterm", "CI": "1"}]
)
async def test_a_dumb_terminal_or_ci_gets_plain_lines(environ: Mapping[str, str]) -> None:
    with open_screen() as (screen, stream):
        async with open_display(stream, {"NO_COLOR": "1", **environ}) as tell:
            for entry in full_run().entries:
                tell(entry)
        assert b"\x1b" not in screen.raw and len(screen.lines) > 10
        assert screen.lines[-1].endswith("verdict: fixed. 1 test failed before and passes now.")


async def test_the_frame_is_redrawn_without_colors_too() -> None:
    async with displayed_run(environ={**XTERM, "NO_COLOR": "1"}) as run:
        run.add(*list(full_run())[:3], model_reply("a", plan("done", "doing")))
        await run.screen.until(r"\[x\] Point 1")
        assert run.screen.colors("Point 1") == {"default"}
        assert (
            b"\x1b[" in run.screen.raw and b"m\x1b" not in run.screen.raw and b"\x1b[1m" not in run.screen.raw
        )


@pytest.mark.parametrize(
    ("environ", "tty", "colored"),
    [
        (XTERM, True, True),
        (XTERM, False, False),
        ({**XTERM, "FORCE_COLOR": "1"}, False, True),
        ({**XTERM, "FORCE_COLOR": "0"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({**XTERM, "NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ({**XTERM, "NO_COLOR": ""}, True, True),
    ],
)
def test_colors_follow_the_environment(environ: Mapping[str, str], tty: bool, colored: bool) -> None:
    with open_screen() as (_, stream), open(os.devnull, "w") as file:
        assert detect_style(stream if tty else file, environ).enabled == colored


async def test_verbose_prints_everything() -> None:
    async with displayed_run(lines=60, verbose=True) as run:
        thought = " ".join(f"word{n}" for n in range(60))
        run.add(
            started(),
            *step("a", RunShell(command="cat <<X\nhello\nX"), shell_result("one\ntwo\nthree"), thought),
        )
        text = "\n".join(line[10:] for line in run.screen.lines)
        assert (
            "word59" in text
            and "     $ cat <<X\n     hello\n     X\n       one\n       two\n       three" in text
        )


async def test_quiet_prints_nothing() -> None:
    with open_screen() as (screen, stream):
        async with open_display(stream, XTERM, quiet=True) as tell:
            for entry in full_run().entries:
                tell(entry)
        screen.read()
        assert screen.raw == b""


def test_a_line_is_truncated_by_cells_and_not_by_characters() -> None:
    assert truncate("one  two\nthree", 20) == "one two three"
    assert truncate("abcdef", 4) == "abc…" and truncate("界界界", 5) == "界界…" and truncate("x" * 9, 0) == ""
    assert display_width(truncate("é" * 50, 10)) <= 10 and len(truncate("e" + "\u0301" * 10_000, 10)) <= 41
