"""Runs on this disk, looked at from the command line."""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bot.terminal.ink import cells
from resolver.agent import begin
from resolver.events import Entry, Trajectory
from resolver.log import FileLog
from runtime.actions import RunShell
from tests.bot.screens import a_screen
from tests.resolver.agents import FINISH, Box, agent
from tests.resolver.scripted import Scripted
from tests.resolver.seen_runs import CHILD, RUN, child_run, decided, ran, run_of, started, step, whole_run


def patchwright(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": os.environ["PATH"], "HOME": str(data), "PATCHWRIGHT_DATA": str(data)}
    command = [sys.executable, "-m", "bot.cli", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """A data directory with one finished run, `acme-7`."""
    (tmp_path / "runs" / "acme-7").mkdir(parents=True)
    log = FileLog(tmp_path / "runs" / "acme-7" / "events.jsonl")
    worker = agent(Scripted([RunShell(command="ls"), FINISH]), Box())
    await begin(log, "You mend.", "Issue 7: \x1b[31mred", worker.tools)
    await worker.run(log)
    log.close()
    return tmp_path


def test_a_run_is_replayed_without_model_or_sandbox(data: Path) -> None:
    shown = patchwright(data, "replay", "acme-7")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[-1] == ("acme-7: 2 steps rebuilt, no prompt differs from what was sent")
    told = json.loads(patchwright(data, "replay", "acme-7", "--json").stdout)
    assert [(step["number"], step["same"]) for step in told["steps"]] == [(1, True), (2, True)]


def test_one_prompt_is_printed_without_control_codes(data: Path) -> None:
    shown = patchwright(data, "replay", "acme-7", "--step", "2").stdout
    assert shown.startswith("--- system\nYou mend.\n--- user\nIssue 7: [31mred\n--- assistant\n")
    assert "[run_shell " in shown and shown.rstrip().endswith("in /workspace]")
    told = json.loads(patchwright(data, "replay", "acme-7", "--step", "2", "--json").stdout)
    assert [message["role"] for message in told["messages"]] == ["system", "user", "assistant", "tool"]


def test_a_prompt_that_differs_ends_with_its_own_code(data: Path) -> None:
    log = data / "runs" / "acme-7" / "events.jsonl"
    log.write_text(log.read_text().replace("You mend.", "You break."))
    shown = patchwright(data, "replay", "acme-7")
    assert shown.returncode == 3
    assert "DIFFERS" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("replay", "acme-8"), "There is no run `acme-8`"),
        (("replay", "../x"), "is not a run's name"),
        (("replay", "acme-7", "--step", "3"), "acme-7 has 2 steps: --step takes 1 to 2"),
    ],
)
def test_what_is_not_there_is_told_in_a_sentence(data: Path, arguments: tuple[str, ...], told: str) -> None:
    shown = patchwright(data, *arguments)
    assert shown.returncode in (1, 2) and told in shown.stderr and "Traceback" not in shown.stderr


# Shown, exported, listed

SECRET = "hunter2-hunter2"


def kept(data: Path, run: str, trajectory: Trajectory) -> Path:
    """A run on disk, as it would have been logged."""
    log = data / "runs" / run / "events.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("".join(entry.model_dump_json() + "\n" for entry in trajectory.entries))
    return log


def with_key(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command where the operator's model key is SECRET."""
    (data / "patchwright.toml").write_text(f'model_api_key = "{SECRET}"\n')
    return patchwright(data, *arguments, "--config", str(data / "patchwright.toml"))


def test_a_run_is_shown_as_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    kept(tmp_path, RUN, whole_run())
    kept(tmp_path, CHILD, child_run())
    told = with_key(tmp_path, "view", RUN)
    file = tmp_path / "runs" / RUN / "view.html"
    assert (told.returncode, told.stdout, told.stderr) == (0, f"{file}\n", "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "add() subtracts" in file.read_text() and "I open it." in file.read_text()
    elsewhere = tmp_path / "elsewhere.html"
    told = with_key(tmp_path, "view", RUN, "--out", str(elsewhere), "--json")
    assert json.loads(told.stdout) == {"run": RUN, "file": str(elsewhere)}
    assert elsewhere.read_text() == file.read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_run_is_shown_on_a_page_of_ones_own(tmp_path: Path) -> None:
    kept(tmp_path, RUN, whole_run())
    own = tmp_path / "texts" / "viewer"
    own.mkdir(parents=True)
    (own / "style.css.j2").write_text("body { color: rebeccapurple }")
    (tmp_path / "patchwright.toml").write_text(f'templates = "{own.parent}"\n')
    told = patchwright(tmp_path, "view", RUN, "--config", str(tmp_path / "patchwright.toml"))
    assert told.returncode == 0, told.stderr
    assert "rebeccapurple" in (tmp_path / "runs" / RUN / "view.html").read_text()


def test_a_run_is_exported_with_those_that_it_asked(tmp_path: Path) -> None:
    kept(tmp_path, RUN, whole_run())
    kept(tmp_path, CHILD, child_run())
    told = patchwright(tmp_path, "export", RUN)
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line["run"] for line in lines] == [RUN] * len(whole_run()) + [CHILD] * len(child_run())
    assert [
        Entry.model_validate({name: line[name] for name in ("seq", "at", "event")}) for line in lines
    ] == [*whole_run().entries, *child_run().entries]
    patchwright(tmp_path, "export", RUN, "--out", str(tmp_path / "out.jsonl"))
    assert (tmp_path / "out.jsonl").read_text() == told.stdout


def test_neither_the_file_nor_the_export_nor_the_list_tells_a_secret(tmp_path: Path) -> None:
    steps = step("a", RunShell(command=f"echo {SECRET}"), ran(SECRET))
    kept(tmp_path, "leaks", run_of(started(title=f"It says {SECRET}"), *steps))
    page = tmp_path / "page.html"
    assert with_key(tmp_path, "view", "leaks", "--out", str(page)).returncode == 0
    exported = with_key(tmp_path, "export", "leaks").stdout
    listed = with_key(tmp_path, "runs").stdout + with_key(tmp_path, "runs", "--json").stdout
    for text in (page.read_text(), exported, listed):
        assert SECRET not in text and "secret-hidden" in text
    assert SECRET in patchwright(tmp_path, "export", "leaks").stdout  # nobody said that it is one


def test_an_export_into_a_pipe_that_closes_ends_quietly(tmp_path: Path) -> None:
    many = (each for n in range(2000) for each in step(str(n), RunShell(command="yes"), ran("y\n" * 500)))
    kept(tmp_path, "long", run_of(started(), *many))
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PATCHWRIGHT_DATA": str(tmp_path)}
    command = f"{shlex.quote(sys.executable)} -m bot.cli export long | head -n 1"
    told = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], env=environ, capture_output=True, timeout=60
    )
    assert (told.returncode, told.stderr, told.stdout.count(b"\n")) == (0, b"", 1)


def test_runs_are_listed_with_what_became_of_them(tmp_path: Path) -> None:
    logs = [
        kept(tmp_path, RUN, whole_run()),
        kept(tmp_path, CHILD, child_run()),
        kept(tmp_path, "cut", run_of(started(title="Cut\x1b[2J off"))),
        kept(tmp_path, "works", run_of(started())),
        kept(tmp_path, "broken", run_of()),
    ]
    logs[-1].write_text("no JSON\n{}\n")
    for age, log in enumerate(logs):
        os.utime(log, (1_700_000_000 - age, 1_700_000_000 - age))
    held = FileLog(logs[3])  # a worker is at it
    told = patchwright(tmp_path, "runs")
    machine = json.loads(patchwright(tmp_path, "runs", "--json").stdout)
    held.close()
    assert told.returncode == 0 and "\x1b" not in told.stdout
    lines = [line.split() for line in told.stdout.splitlines()]
    assert [line[:2] for line in lines] == [
        ["run", "state"], [RUN, "delivered"], ["cut", "stopped"], ["works", "working"], ["broken", "damaged"],
    ]  # fmt: skip
    assert lines[1][2:4] == ["fixed", "$0.55"]
    first = machine["runs"][0]
    assert (first["repository"], first["number"], first["verdict"]) == ("acme/calc", 7, "fixed")
    assert (first["pull_request"], first["steps"]) == ("https://forge.test/acme/calc/pull/8", 6)


def test_a_dry_run_is_not_listed_as_delivered(tmp_path: Path) -> None:
    log = kept(tmp_path, RUN, whole_run())
    log.write_text(log.read_text().replace("https://forge.test/acme/calc/pull/8", "dry-run"))
    (run,) = json.loads(patchwright(tmp_path, "runs", "--state", "dry-run", "--json").stdout)["runs"]
    assert (run["state"], run["verdict"], run["pull_request"]) == ("dry-run", "fixed", None)


def test_only_the_newest_runs_are_listed_unless_all_are_asked_for(tmp_path: Path) -> None:
    for number in range(23):
        kept(tmp_path, f"run-{number}", run_of(started()))
    assert len(patchwright(tmp_path, "runs").stdout.splitlines()) == 1 + 20
    assert len(patchwright(tmp_path, "runs", "--all").stdout.splitlines()) == 1 + 23


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A data directory: `calc-9-b` went on last, before it `calc-9-a` and the run of seen_runs with its delegate."""
    wide = "\u754c" * 5 + " division by zero where nothing was measured, and a long story about it"
    logs = [
        kept(tmp_path, "calc-9-b", run_of(started(title=wide))),
        kept(tmp_path, "calc-9-a", run_of(started(title="Nine"))),
        kept(tmp_path, RUN, whole_run()),
        kept(tmp_path, CHILD, child_run()),
    ]
    for age, log in enumerate(logs):
        os.utime(log, (time.time() - 7200 - age, time.time() - 7200 - age))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("NINE",), ["calc-9-a"]),
        (("calc-9",), ["calc-9-b", "calc-9-a"]),
        (("acme/calc#7", "--state", "delivered"), [RUN]),
        (("--verdict", "fixed"), [RUN]),
        (("--verdict", "regressed"), []),
    ],
)
def test_runs_are_found_by_what_is_known_of_them(
    three: Path, arguments: tuple[str, ...], names: list[str]
) -> None:
    told = json.loads(patchwright(three, "runs", "--json", *arguments).stdout)
    assert [one["run"] for one in told["runs"]] == names
    if not names:
        assert patchwright(three, "runs", *arguments).stdout.startswith("There are no runs that fit below ")


@pytest.mark.parametrize(
    ("given", "meant"), [("last", "calc-9-b"), ("acme", RUN), ("calc-9-a", "calc-9-a"), (CHILD, CHILD)]
)
def test_a_run_is_named_by_its_beginning_or_as_the_last(three: Path, given: str, meant: str) -> None:
    told = patchwright(three, "view", given, "--json")
    assert json.loads(told.stdout) == {"run": meant, "file": str(three / "runs" / meant / "view.html")}
    first = json.loads(patchwright(three, "export", given).stdout.partition("\n")[0])
    assert first["run"] == meant


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("view", "calc-9"), "`calc-9` could be `calc-9-b`, `calc-9-a`: write more of its name."),
        (("view", "calk-9-a"), "Near it: `calc-9-a`, `calc-9-b`"),
        (("export", "../x"), "`../x` is not a run's name"),
        (("replay", "\x1b[2J" * 99), "is not a run's name"),
        (("view", ""), "is not a run's name"),
        (("resolve", "--continue", "zzz", "--model", "m"), "There is no run `zzz` below "),
        (
            ("resolve", "--continue", "acme", "--out", "f", "--model", "m"),
            "--out is for a repository on this",
        ),
        (("runs", "--state", "sleeping"), "--state takes one of working, delivered, "),
        (("runs", "--nonsense"), "unrecognized arguments: --nonsense"),
        (("resolve", "--quiet", "--verbose"), "not allowed with argument"),
    ],
)
def test_what_is_not_understood_is_told_to_people_and_machines(
    three: Path, arguments: tuple[str, ...], told: str
) -> None:
    said = patchwright(three, *arguments)
    assert said.returncode == 2 and told in said.stderr and "\x1b" not in said.stderr
    if arguments[0] != "export":
        machine = patchwright(three, *arguments, "--json")
        value = json.loads(machine.stdout)
        assert (value["outcome"], value["exit_code"], machine.returncode) == ("error", 2, 2)
        assert told in value["error"]


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (
            120,
            [
                "run          state      verdict  cost   age  about",
                "calc-9-b     stopped             $0.00  2 h  acme/calc#7 \u754c\u754c\u754c\u754c\u754c division",
                "calc-9-a     stopped             $0.00  2 h  acme/calc#7 Nine",
                "acme-calc-7  delivered  fixed    $0.55  2 h  acme/calc#7 add() subtracts",
            ],
        ),
        (
            30,
            [
                "calc-9-b     stopped",
                "           $0.00  2 h",
                "  acme/calc#7 \u754c\u754c\u754c\u754c\u754c di",
            ],
        ),
    ],
)
async def test_the_list_fits_the_terminal(three: Path, columns: int, lines: list[str]) -> None:
    environ = {"PATH": os.environ["PATH"], "PATCHWRIGHT_DATA": str(three), "TERM": "xterm"}
    with a_screen(columns, 30) as (screen, _):
        process = screen.run([sys.executable, "-m", "bot.cli", "runs"], environ)
        await screen.until(lambda _: process.poll() is not None)
        assert [seen[: len(line)] for seen, line in zip(screen.lines, lines, strict=False)] == lines
        assert all(cells(line) < columns for line in screen.lines)
        assert screen.colours("delivered") == {"green"}


def test_a_cost_of_which_some_or_nothing_is_known_is_listed_as_that(tmp_path: Path) -> None:
    known = decided("a")
    unknown = known.model_copy(update={"usage": known.usage.model_copy(update={"usd": None})})
    kept(tmp_path, "partly", run_of(started(), known, unknown))
    kept(tmp_path, "wholly", run_of(started(), unknown))
    listed = json.loads(patchwright(tmp_path, "runs", "--json").stdout)["runs"]
    assert {one["run"]: (one["cost_usd"], one["cost_usd_at_least"]) for one in listed} == {
        "partly": (None, 0.01),
        "wholly": (None, None),
    }
    lines = patchwright(tmp_path, "runs").stdout.splitlines()
    assert any("  at least $0.01  " in line for line in lines) and any(
        "  unknown  " in line for line in lines
    )


async def test_a_run_is_opened_for_who_sits_at_a_terminal_with_a_browser(three: Path) -> None:
    opened = three / "opened"
    browser = three / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {opened}\n')
    browser.chmod(0o755)
    page = f"file://{three / 'runs' / RUN / 'view.html'}"
    environ = {"PATH": os.environ["PATH"], "PATCHWRIGHT_DATA": str(three), "TERM": "xterm"}
    with_browser = {**environ, "BROWSER": f"{browser} %s"}
    for arguments, around, opens in (
        (("acme",), with_browser, 1),
        (("acme", "--no-open"), with_browser, 0),
        (("acme", "--json"), with_browser, 0),
        (("acme",), environ, 0),
    ):
        opened.write_text("")
        with a_screen(200) as (screen, _):
            process = screen.run([sys.executable, "-m", "bot.cli", "view", *arguments], around)
            await screen.until(lambda _, process=process: process.poll() is not None)  # type: ignore[misc]
            assert process.returncode == 0 and "view.html" in screen.lines[0] and len(screen.lines) == 1
        assert opened.read_text().splitlines() == [page] * opens


@pytest.mark.parametrize("arguments", [("runs", "--all"), ("replay", RUN), ("export", RUN), ("doctor",)])
def test_a_pipe_that_closes_is_no_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    many = (each for n in range(200) for each in step(str(n), RunShell(command="yes"), ran("y\n")))
    kept(tmp_path, RUN, run_of(started(), *many))
    for number in range(20):
        kept(tmp_path, f"{number}-{'long' * 40}", run_of(started()))
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PATCHWRIGHT_DATA": str(tmp_path)}
    command = f"{shlex.quote(sys.executable)} -m bot.cli {shlex.join(arguments)} | true"
    told = subprocess.run(["bash", "-c", command], env=environ, capture_output=True, timeout=60)
    assert told.stderr == b""


def test_a_disk_without_runs_says_so(tmp_path: Path) -> None:
    assert patchwright(tmp_path, "runs").stdout == f"There are no runs below {tmp_path / 'runs'}.\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("view", "acme-8"), "There is no run `acme-8`"),
        (("export", "../x"), "is not a run's name"),
        (("view", "acme-7", "--out", "/"), "/ cannot be written: "),
        (("export", "acme-7", "--out", "/nowhere/at/all"), "/nowhere/at/all cannot be written: "),
    ],
)
def test_what_cannot_be_shown_is_told_in_a_sentence(
    data: Path, arguments: tuple[str, ...], told: str
) -> None:
    shown = patchwright(data, *arguments)
    assert shown.returncode in (1, 2) and told in shown.stderr and "Traceback" not in shown.stderr


def test_a_machine_without_a_browser_says_so(data: Path) -> None:
    environ = {"PATH": "/nowhere", "HOME": str(data), "PATCHWRIGHT_DATA": str(data)}
    command = [sys.executable, "-m", "bot.cli", "view", "acme-7", "--open"]
    told = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert told.returncode == 0 and told.stdout.endswith("view.html\n")
    assert told.stderr == "There is no browser here: open the file yourself.\n"
