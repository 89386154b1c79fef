"""The terminal display of a run: while it runs, when it is stopped, and when it continues."""

import asyncio
import json
import re
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from patchwright.demo.recorded_model import RecordedTurn
from patchwright.resolver.tool_actions.control_actions import Finish, Plan
from patchwright.runtime.actions import RunShell
from patchwright.runtime.tool_action import PlanItem
from tests.bot.screens import open_screen
from tests.end_to_end.conftest import CODE, DONE, FIX, FIX_TURNS, NEW_TEST, RUN_TESTS, TESTS, Scenario
from tests.preloaded_command import preloaded_command
from tests.resolver.git_repository import Repository

PLAN = Plan(items=(PlanItem(text="Fix add()", status="doing"), PlanItem(text="Test it", status="open")))
ALL_DONE = Plan(items=(PlanItem(text="Fix add()", status="done"), PlanItem(text="Test it", status="done")))


@pytest.fixture
def resolve_arguments(tmp_path: Path) -> tuple[str, ...]:
    """The arguments to fix a repository on this disk."""
    made = Repository(tmp_path / "calc")
    made.commit({"calc.py": CODE, "tests/test_calc.py": TESTS})
    issue = tmp_path / "issue.md"
    issue.write_text("add() subtracts")
    return ("resolve", "--repo", str(made.path), "--issue", str(issue))


@pytest.mark.slow
async def test_a_run_is_displayed_stopped_and_continued(
    scenario: Scenario, resolve_arguments: tuple[str, ...], tmp_path: Path
) -> None:
    there = tmp_path / "there"
    scenario.environment["TERM"] = "xterm-256color"
    await scenario.script_model(
        RecordedTurn("Plan it.", PLAN), RecordedTurn("Hang.", RunShell(command=f"touch {there}; sleep 600"))
    )
    with open_screen(70, 30) as (screen, _):
        modes = termios.tcgetattr(screen.slave)
        process = screen.run([*preloaded_command(), *resolve_arguments], scenario.environment)
        await screen.until(r"> \$ touch .*  [1-9] s")
        assert "calc add() subtracts" in screen.lines
        assert "  [>] Fix add()" in screen.lines and "  [ ] Test it" in screen.lines
        assert re.search(r"^  \d+ s · .*tokens", screen.lines[-1])
        screen.press("\x03")
        await screen.until(lambda _: process.poll() is not None)
        assert process.returncode == 130
        (run,) = scenario.runs
        assert (
            f"patchwright resolve --continue {run}" in "".join(screen.lines)
            and screen.lines[-1] == "Stopped."
        )
        assert "[>]" not in "\n".join(screen.scrolled)  # the live display is erased
        assert screen.cursor == (len(screen.lines), 0) and termios.tcgetattr(screen.slave) == modes

        await scenario.script_model(
            RecordedTurn("Look.", RUN_TESTS), RecordedTurn("Look.", RUN_TESTS), RecordedTurn("Fix.", FIX),
            RecordedTurn("Prove.", NEW_TEST), RecordedTurn("Test.", RUN_TESTS, ALL_DONE), RecordedTurn("Done.", DONE),
        )  # fmt: skip
        goes_on = [*preloaded_command(), "resolve", "--continue", run[:12]]
        process = screen.run(goes_on, scenario.environment)
        await screen.until(r"> waiting for|> \$")
        await screen.until(lambda _: process.poll() is not None)
        assert process.returncode == 0, "\n".join(screen.scrolled)
        text = "\n".join(screen.scrolled)
        assert "verdict: fixed." in text and "+    return a + b" in screen.scrolled
        assert f"To write this patch to a file: patchwright resolve --continue {run}" in text.replace(
            "\n", ""
        )


@pytest.mark.slow
async def test_a_dry_run_prints_its_writes_above_the_live_display(
    make_scenario: Callable[..., Scenario],
) -> None:
    scenario = make_scenario(title="add() \x1b[2J subtracts")
    await scenario.script_model(
        RecordedTurn("Fix.", FIX, NEW_TEST), RecordedTurn("Test.", RUN_TESTS), RecordedTurn("Done.", DONE)
    )
    scenario.environment["TERM"] = "xterm-256color"
    url = f"{scenario.fake_github.server_url}/acme/calc/issues/1"
    with open_screen(100, 40) as (screen, _):
        process = screen.run([*preloaded_command(), "resolve", "--dry-run", url], scenario.environment)
        await screen.until(lambda _: process.poll() is not None)
        assert process.returncode == 0, "\n".join(screen.scrolled)
        text = "\n".join(screen.scrolled)
        assert "\n--- pull request: Fix: add()" in text and "\n**Fixed:**" in text, text
        assert b"\x1b[2J" not in screen.raw and "\n> " not in text.rpartition("**Fixed:**")[2]
        assert screen.lines[-1].startswith("view: patchwright view acme-calc-1-")


@pytest.mark.slow
async def test_a_pipe_gets_plain_lines_and_quiet_prints_only_the_result(
    scenario: Scenario, resolve_arguments: tuple[str, ...]
) -> None:
    for flag, notice in (("--verbose", True), ("--quiet", False)):
        await scenario.script_model(
            RecordedTurn("Fix.", FIX, NEW_TEST),
            RecordedTurn("Test.", RUN_TESTS),
            RecordedTurn("Done.", DONE),
        )
        code, out, error = await scenario.command(*resolve_arguments, flag)
        assert code == 0 and out.startswith("verdict: fixed.") and "\x1b" not in out + error
        assert ("+    return a + b" in error) == notice and ("waiting for" in error) is False
        assert ("prompt sent to the agent" in error) == notice and "view: patchwright view" in error
        assert re.search(r"^total: .+ s, \d+ steps, \S+ tokens, ", error, re.MULTILINE)


@pytest.mark.slow
async def test_the_agents_summary_is_printed_beside_the_verdict(
    scenario: Scenario, resolve_arguments: tuple[str, ...]
) -> None:
    """Without a change, it is the only result of a run."""
    account = Finish(cause="add() adds.", change="None: there is no such bug.", testing="Ran it.")
    await scenario.script_model(RecordedTurn("Nothing to do.", account))
    code, out, error = await scenario.command(*resolve_arguments)
    assert code == 3 and out.startswith("verdict: no change."), error
    assert out.endswith("\ncause: add() adds.\nchange: None: there is no such bug.\ntesting: Ran it.\n")
    await scenario.script_model(RecordedTurn("Nothing to do.", account))
    code, out, _ = await scenario.command(*resolve_arguments, "--json")
    data = {"cause": "add() adds.", "change": "None: there is no such bug.", "testing": "Ran it."}
    assert (code, json.loads(out)["summary"]) == (3, data)


@pytest.mark.slow
async def test_a_file_that_is_left_out_of_the_patch_is_reported(
    scenario: Scenario, resolve_arguments: tuple[str, ...]
) -> None:
    add_file = RunShell(command="printf x > \"$(printf 'odd\\033name.txt')\"; printf y > plain.txt")
    sentence = "The name of odd\\u001bname.txt contains invisible characters."
    for flags in ((), ("--json",)):
        await scenario.script_model(
            RecordedTurn("Add it.", add_file), RecordedTurn("Test.", RUN_TESTS), RecordedTurn("Done.", DONE)
        )
        _, out, error = await scenario.command(*resolve_arguments, *flags)
        assert "plain.txt" in out, error
        if flags:
            assert json.loads(out)["excluded_changes"] == [sentence]
        else:
            assert f"NOTICE: Left out of the patch: {sentence}\n" in error


@pytest.mark.slow
async def test_a_second_ctrl_c_restores_the_prompt_on_a_clean_line(
    scenario: Scenario, resolve_arguments: tuple[str, ...], tmp_path: Path
) -> None:
    scenario.environment["TERM"] = "xterm-256color"
    await scenario.script_model(RecordedTurn("Hang.", RunShell(command="sleep 600")))
    with open_screen(70, 30) as (screen, _):
        process = screen.run([*preloaded_command(), *resolve_arguments], scenario.environment)
        await screen.until(r"> \$ sleep 600  \d")
        screen.press("\x03")
        await screen.until(
            lambda seen: "Resume it with" in "\n".join(seen.scrolled) or process.poll() is not None
        )
        screen.press("\x03")
        await screen.until(lambda _: process.poll() is not None)
        text = "\n".join(screen.scrolled)
        assert process.returncode == 130, text
        assert "Traceback" not in text and "Stopped." in screen.lines
        assert text.count("tokens") <= text.count("So far: ")  # The frame is erased.


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "code"), [("n", 2), ("y", 0)])
async def test_without_an_engine_the_local_sandbox_needs_consent(
    scenario: Scenario, resolve_arguments: tuple[str, ...], answer: str, code: int
) -> None:
    await scenario.script_model(*FIX_TURNS)
    environment = scenario.environment | {
        "DOCKER_HOST": "unix:///nowhere/docker.sock",
        "PATCHWRIGHT_SANDBOX": "auto",
        "TERM": "xterm",
    }
    with open_screen(columns=200) as (screen, _):
        process = screen.run([*preloaded_command(), *resolve_arguments], environment)
        await screen.until(r"on this machine instead, without isolation\? \[y/N\]")
        assert scenario.endpoint.requests == []
        screen.press(f"{answer}\n")
        assert await asyncio.to_thread(process.wait, 60) == code, screen.scrolled
        assert any("use --sandbox local" in line for line in screen.scrolled) == (code == 2)
