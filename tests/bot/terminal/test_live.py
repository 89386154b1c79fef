"""A run as a person sees it on a terminal: in place, in every window, whatever it says."""

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import TextIO

import pytest

from bot.terminal.ink import cells, fit, ink_for
from bot.terminal.live import telling
from resolver.actions import Plan, PlanItem
from resolver.events import Ended, Entry, Event, Told
from resolver.log import Listener
from runtime.actions import RunShell
from tests.bot.screens import Screen, a_screen
from tests.resolver.seen_runs import decided, ran, started, step, whole_run

XTERM = {"TERM": "xterm-256color"}


class Watched:
    """A run that is told on a screen."""

    def __init__(self, screen: Screen, stream: TextIO, tell: Listener) -> None:
        self.screen, self.stream, self._tell, self._told = screen, stream, tell, 0

    def happens(self, *events: Event, ago: float = 0.0) -> None:
        """These events, now or so many seconds ago."""
        for event in events:
            at = datetime.now(UTC) - timedelta(seconds=ago)
            self._tell(Entry(seq=self._told, at=at, event=event))
            self._told += 1


@asynccontextmanager
async def watched(
    columns: int = 80, lines: int = 24, environ: Mapping[str, str] = XTERM, *, verbose: bool = False
) -> AsyncIterator[Watched]:
    with a_screen(columns, lines) as (screen, stream):
        async with telling(stream, environ, verbose=verbose) as tell:
            yield Watched(screen, stream, tell)
        assert screen.cursor[1] == 0  # the prompt of the shell stands where it should


def plan(*states: str) -> Plan:
    return Plan(items=tuple(PlanItem(text=f"Point {n}", state=state) for n, state in enumerate(states, 1)))  # type: ignore[arg-type]


def below(screen: Screen) -> list[str]:
    """The picture that stands below what was told."""
    lines = screen.lines
    return lines[len(lines) - lines[::-1].index("") :]


async def test_plan_step_time_and_cost_stand_below_what_was_told() -> None:
    async with watched() as run:
        run.happens(*list(whole_run())[:3], ago=75)
        run.happens(decided("a", plan("done", "doing", "open")), ago=12)
        run.happens(*step("b", RunShell(command="pytest -q"), ran("1 failed", 1), "Reproduce it."), ago=12)
        run.happens(decided("c", RunShell(command="pytest -x tests"), thought="Once more."), ago=11)
        await run.screen.until(r"> \$ pytest -x tests  1[1-9] s")
        assert run.screen.lines[0] == "   0.0 s  acme/calc#7: add() subtracts"
        assert "  63.0 s       $ pytest -q  → exit code 1: 1 failed" in run.screen.lines
        title, *points, _, figures = below(run.screen)
        assert title == "acme/calc#7 add() subtracts"
        assert points == ["  [x] Point 1", "  [>] Point 2", "  [ ] Point 3"]
        assert figures.startswith("  1 min 1") and " · $0.0300 of $2.00 · 3,150 tokens · 3 of 100" in figures
        assert run.screen.colours("[x] Point 1") == {"green"}
        assert "bold" in run.screen.colours("Once more.") and run.screen.colours("$ pytest -q") == {"brown"}


async def test_a_cost_that_is_not_all_says_so_beside_its_limit() -> None:
    async with watched() as run:
        run.happens(*list(whole_run())[:3], ago=75)
        asked = decided("a", plan("doing"))
        unpriced = asked.usage.model_copy(update={"usd": None})
        run.happens(asked, decided("b").model_copy(update={"usage": unpriced}), ago=12)
        await run.screen.until(r" · at least \$0\.0\d+ of \$2\.00 · ")


async def test_what_was_told_stays_and_the_picture_goes_at_the_end() -> None:
    with a_screen() as (screen, stream):
        async with telling(stream, XTERM) as tell:
            for entry in whole_run().entries:
                tell(entry)
            assert "[x] Reproduce it" in "\n".join(screen.lines)
        assert screen.lines[-1].endswith("verdict: fixed. 1 test failed before and passes now.")
        assert screen.cursor == (len(screen.lines), 0)
        assert "[x]" not in "\n".join(screen.scrolled) and screen.colours("verdict") == {"green"}


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ([started()], "making the sandbox ready"),
        ([started(), Told(text="Mend it.", source="brief")], "waiting for vendor/model-1"),
        ([started(), decided("a", RunShell(command="make"))], r"\$ make"),
        ([started(), *step("a", RunShell(command="make"), ran(""))], "waiting for vendor/model-1"),
        (
            [started(), decided("a"), Ended(reason="finished", detail="Done.")],
            "proving the patch in clean sandboxes",
        ),
        ([started(), decided("a"), Ended(reason="asked", detail="Which?")], "finishing"),
        (list(whole_run()), "finishing"),
    ],
)  # fmt: skip
async def test_what_is_waited_for_is_named(events: Sequence[Event], what: str) -> None:
    async with watched(lines=40) as run:
        run.happens(*events)
        await run.screen.until(rf"> {what}  \d+ s")


async def test_the_tests_on_the_untouched_code_are_named_until_they_have_ended() -> None:
    async with watched() as run:
        run.happens(started(), Told(text="They are still being run on the untouched code.", source="brief"))
        await run.screen.until("the tests run at base$")
        run.happens(Told(text="All pass.", source="baseline"))
        await run.screen.until(lambda screen: "at base" not in "\n".join(screen.lines))


@pytest.mark.parametrize(("columns", "lines"), [(40, 12), (20, 6), (200, 50), (80, 3)])
async def test_the_picture_fits_every_window(columns: int, lines: int) -> None:
    async with watched(columns, lines) as run:
        run.happens(*list(whole_run())[:3], decided("a", plan(*["done"] * 14, "doing", *["open"] * 15)))
        for n in range(30):
            run.happens(*step(f"b{n}", RunShell(command="echo " + "long " * 30), ran("much " * 50), "Hm."))
        run.happens(decided("c", RunShell(command="sleep " + "9" * 200)))
        await run.screen.until(r"…  \d+ s")
        seen = run.screen.lines
        assert all(cells(line) <= columns for line in seen)
        assert "[>] Point 15" in "\n".join(seen) or lines < 8
        run.stream.flush()
        assert (
            "\n".join(run.screen.scrolled).count("> $ sleep 999") == 1
        )  # nothing of an older picture is left
        assert "\n".join(run.screen.scrolled).count("Point 15") <= 1


async def test_a_window_that_changes_is_drawn_anew() -> None:
    async with watched() as run:
        run.happens(*list(whole_run())[:3], decided("a", plan("doing", "open")))
        run.happens(decided("b", RunShell(command="sleep 1000 && " + "x" * 100)))
        await run.screen.until("> .*…  ")
        for columns in (40, 100, 30, 80):
            run.screen.resize(columns)
            await run.screen.until(
                lambda screen, columns=columns: any(  # type: ignore[misc]
                    line.startswith("> $") and columns - 4 <= len(line) < columns for line in screen.lines
                )
            )
            assert "\n".join(run.screen.lines).count("acme/calc#7 add") == 1


async def test_foreign_text_steers_nothing() -> None:
    evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202eevil\u2066\r\n\x08\x00\x7f" + "界" * 200 + "e\u0301" * 500
    async with watched(60, 16) as run:
        run.happens(*list(whole_run())[1:3], started(title=evil))
        items = (PlanItem(text=evil[:280], state="doing"),)
        run.happens(*step("a", Plan(items=items), ran("\x1b[31m" * 1000, 1), evil))
        run.happens(decided("b", RunShell(command=evil + "\n" * 3000)))
        await run.screen.until(r"> \$ .*evil 界+…  \d+ s")
        below_it = below(run.screen)
        assert len(below_it) == 4 and all(cells(line) <= 60 for line in below_it)
        assert b"\x1b[2J" not in run.screen.raw and b"\x1b]0" not in run.screen.raw
        assert "\u202e".encode() not in run.screen.raw and b"\x1b[31m\x1b[31m" not in run.screen.raw


async def test_what_others_print_or_log_stands_above_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_screen() as (screen, stream):
        monkeypatch.setattr(sys, "stderr", stream)
        handler = logging.StreamHandler(stream)
        monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
        async with telling(stream, XTERM) as tell:
            tell(Entry(seq=0, at=datetime.now(UTC), event=started()))
            print("NOTICE: \x1b[2Jno engine", file=sys.stderr)
            await asyncio.to_thread(logging.getLogger("library").warning, "it is slow")
            print("no end", end="", file=sys.stderr)
            await screen.until("it is slow")
            assert screen.lines[2:4] == ["NOTICE: [2Jno engine", "it is slow"]
            assert below(screen)[0] == "acme/calc#7 add() subtracts"
        assert screen.lines[2:] == ["NOTICE: [2Jno engine", "it is slow", "no end"]
        assert sys.stderr is stream and handler.stream is stream


@pytest.mark.parametrize(
    "environ", [{"TERM": "dumb"}, {}, {"TERM": "xterm", "CI": "true"}, {"TERM": "xterm", "CI": "1"}]
)
async def test_a_terminal_that_cannot_or_nobody_looks_at_gets_lines(environ: Mapping[str, str]) -> None:
    with a_screen() as (screen, stream):
        async with telling(stream, {"NO_COLOR": "1", **environ}) as tell:
            for entry in whole_run().entries:
                tell(entry)
        assert b"\x1b" not in screen.raw and len(screen.lines) > 10
        assert screen.lines[-1].endswith("verdict: fixed. 1 test failed before and passes now.")


async def test_without_colours_it_stands_in_place_all_the_same() -> None:
    async with watched(environ={**XTERM, "NO_COLOR": "1"}) as run:
        run.happens(*list(whole_run())[:3], decided("a", plan("done", "doing")))
        await run.screen.until(r"\[x\] Point 1")
        assert run.screen.colours("Point 1") == {"default"}
        assert (
            b"\x1b[" in run.screen.raw and b"m\x1b" not in run.screen.raw and b"\x1b[1m" not in run.screen.raw
        )


@pytest.mark.parametrize(
    ("environ", "tty", "coloured"),
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
def test_colours_go_where_they_are_wanted(environ: Mapping[str, str], tty: bool, coloured: bool) -> None:
    with a_screen() as (_, stream), open(os.devnull, "w") as file:
        assert ink_for(stream if tty else file, environ).on == coloured


async def test_everything_is_told_to_who_wants_it() -> None:
    async with watched(lines=60, verbose=True) as run:
        thought = " ".join(f"word{n}" for n in range(60))
        run.happens(
            started(), *step("a", RunShell(command="cat <<X\nhello\nX"), ran("one\ntwo\nthree"), thought)
        )
        text = "\n".join(line[10:] for line in run.screen.lines)
        assert (
            "word59" in text
            and "     $ cat <<X\n     hello\n     X\n       one\n       two\n       three" in text
        )


async def test_nothing_is_told_to_who_wants_quiet() -> None:
    with a_screen() as (screen, stream):
        async with telling(stream, XTERM, quiet=True) as tell:
            for entry in whole_run().entries:
                tell(entry)
        screen.read()
        assert screen.raw == b""


def test_a_line_is_cut_by_cells_and_not_by_characters() -> None:
    assert fit("one  two\nthree", 20) == "one two three"
    assert fit("abcdef", 4) == "abc…" and fit("界界界", 5) == "界界…" and fit("x" * 9, 0) == ""
    assert cells(fit("é" * 50, 10)) <= 10 and len(fit("e" + "\u0301" * 10_000, 10)) <= 41
