"""Commands that read runs from this disk."""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patchwright.bot.terminal.style import display_width
from patchwright.resolver.agent.agent import record_prompts
from patchwright.resolver.events import Entry, Trajectory
from patchwright.resolver.run_log import FileRunLog
from patchwright.runtime.actions import RunShell
from tests.bot.screens import open_screen
from tests.preloaded_command import preloaded_command
from tests.resolver.agent_runs import FINISH, FakeSandbox, make_agent
from tests.resolver.sample_runs import (
    CHILD,
    RUN,
    child_run,
    full_run,
    model_reply,
    run_of,
    shell_result,
    started,
    step,
)
from tests.resolver.scripted_model import ScriptedModel


def environment(data: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(data), "PATCHWRIGHT_DATA": str(data)}


def patchwright(data: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command, environ = [*preloaded_command(), *arguments], environment(data) | variables
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    """A data directory with one finished run, `acme-7`."""
    (tmp_path / "runs" / "acme-7").mkdir(parents=True)
    log = FileRunLog(tmp_path / "runs" / "acme-7" / "events.jsonl")
    worker = make_agent(ScriptedModel([RunShell(command="ls"), FINISH]), FakeSandbox())
    await record_prompts(log, "You fix.", "Issue 7: \x1b[31mred", worker.tools)
    await worker.run(log)
    log.close()
    return tmp_path


def test_a_run_is_replayed_without_model_or_sandbox(data: Path) -> None:
    shown = patchwright(data, "replay", "acme-7", REDIS_URL="redis://127.0.0.1:9/0")  # It is stopped.
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.splitlines()[-1] == (
        "acme-7: 2 steps rebuilt, no prompt differs from the prompt that was sent"
    )
    result = json.loads(patchwright(data, "replay", "acme-7", "--json").stdout)
    assert [(step["number"], step["identical"]) for step in result["steps"]] == [(1, True), (2, True)]


def test_one_prompt_is_printed_without_control_codes(data: Path) -> None:
    shown = patchwright(data, "replay", "acme-7", "--step", "2").stdout
    assert shown.startswith("--- system\nYou fix.\n--- user\nIssue 7: [31mred\n--- assistant\n")
    assert "[run_shell " in shown and shown.rstrip().endswith("in /workspace]")
    result = json.loads(patchwright(data, "replay", "acme-7", "--step", "2", "--json").stdout)
    assert [message["role"] for message in result["messages"]] == ["system", "user", "assistant", "tool"]


def test_a_differing_prompt_has_its_own_exit_code(data: Path) -> None:
    log = data / "runs" / "acme-7" / "events.jsonl"
    log.write_text(log.read_text().replace("You fix.", "You break."))
    shown = patchwright(data, "replay", "acme-7")
    assert shown.returncode == 3
    assert "DIFFERS" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (("replay", "acme-8"), "There is no run `acme-8`"),
        (("replay", "../x"), "is not the name of a run"),
        (("replay", "acme-7", "--step", "3"), "acme-7 has 2 steps: use --step 1 to 2"),
    ],
)
def test_a_missing_run_or_step_is_reported_in_a_sentence(
    data: Path, arguments: tuple[str, ...], result: str
) -> None:
    shown = patchwright(data, *arguments)
    assert shown.returncode in (1, 2) and result in shown.stderr and "Traceback" not in shown.stderr


SECRET = "hunter2-hunter2"


def store_log(data: Path, run: str, trajectory: Trajectory) -> Path:
    """Stores the log of a run on disk."""
    log = data / "runs" / run / "events.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("".join(entry.model_dump_json() + "\n" for entry in trajectory.entries))
    return log


def run_with_key(data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command with SECRET as the model's API key."""
    (data / "patchwright.toml").write_text(f'model_api_key = "{SECRET}"\n')
    return patchwright(data, *arguments, "--config", str(data / "patchwright.toml"))


def test_a_view_is_a_file_that_only_its_owner_can_read(tmp_path: Path) -> None:
    store_log(tmp_path, RUN, full_run())
    store_log(tmp_path, CHILD, child_run())
    result = run_with_key(tmp_path, "view", RUN)
    file = tmp_path / "runs" / RUN / "view.html"
    assert (result.returncode, result.stdout, result.stderr) == (0, f"{file}\n", "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "add() subtracts" in file.read_text() and "I open it." in file.read_text()
    elsewhere = tmp_path / "elsewhere.html"
    result = run_with_key(tmp_path, "view", RUN, "--out", str(elsewhere), "--json")
    assert json.loads(result.stdout) == {"run": RUN, "file": str(elsewhere)}
    assert elsewhere.read_text() == file.read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_view_uses_custom_templates(tmp_path: Path) -> None:
    store_log(tmp_path, RUN, full_run())
    own = tmp_path / "texts" / "viewer"
    own.mkdir(parents=True)
    (own / "style.css.j2").write_text("body { color: rebeccapurple }")
    (tmp_path / "patchwright.toml").write_text(f'templates = "{own.parent}"\n')
    result = patchwright(tmp_path, "view", RUN, "--config", str(tmp_path / "patchwright.toml"))
    assert result.returncode == 0, result.stderr
    assert "rebeccapurple" in (tmp_path / "runs" / RUN / "view.html").read_text()


def test_a_run_is_exported_with_its_subagents(tmp_path: Path) -> None:
    store_log(tmp_path, RUN, full_run())
    store_log(tmp_path, CHILD, child_run())
    result = patchwright(tmp_path, "export", RUN)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["run"] for line in lines] == [RUN] * len(full_run()) + [CHILD] * len(child_run())
    assert [
        Entry.model_validate({name: line[name] for name in ("seq", "timestamp", "event")}) for line in lines
    ] == [*full_run().entries, *child_run().entries]
    patchwright(tmp_path, "export", RUN, "--out", str(tmp_path / "out.jsonl"))
    assert (tmp_path / "out.jsonl").read_text() == result.stdout


def test_view_export_and_list_mask_secrets(tmp_path: Path) -> None:
    steps = step("a", RunShell(command=f"echo {SECRET}"), shell_result(SECRET))
    store_log(tmp_path, "leaks", run_of(started(title=f"It says {SECRET}"), *steps))
    page = tmp_path / "page.html"
    assert run_with_key(tmp_path, "view", "leaks", "--out", str(page)).returncode == 0
    exported = run_with_key(tmp_path, "export", "leaks").stdout
    listed = run_with_key(tmp_path, "runs").stdout + run_with_key(tmp_path, "runs", "--json").stdout
    for text in (page.read_text(), exported, listed):
        assert SECRET not in text and "secret-hidden" in text
    # Without the setting, nothing marks it as a secret.
    assert SECRET in patchwright(tmp_path, "export", "leaks").stdout


def test_an_export_into_a_pipe_that_closes_ends_quietly(tmp_path: Path) -> None:
    many = (
        each for n in range(2000) for each in step(str(n), RunShell(command="yes"), shell_result("y\n" * 500))
    )
    store_log(tmp_path, "long", run_of(started(), *many))
    command = f"set -o pipefail; {shlex.join(preloaded_command())} export long | head -n 1"
    result = subprocess.run(
        ["bash", "-c", command], env=environment(tmp_path), capture_output=True, timeout=60
    )
    assert (result.returncode, result.stderr, result.stdout.count(b"\n")) == (0, b"", 1)


def test_runs_are_listed_with_their_results(tmp_path: Path) -> None:
    logs = [
        store_log(tmp_path, RUN, full_run()),
        store_log(tmp_path, CHILD, child_run()),
        store_log(tmp_path, "cut", run_of(started(title="Cut\x1b[2J off"))),
        store_log(tmp_path, "works", run_of(started())),
        store_log(tmp_path, "broken", run_of()),
    ]
    logs[-1].write_text("no JSON\n{}\n")
    for age, log in enumerate(logs):
        os.utime(log, (1_700_000_000 - age, 1_700_000_000 - age))
    held = FileRunLog(logs[3])  # A worker holds the log.
    result = patchwright(tmp_path, "runs")
    machine = json.loads(patchwright(tmp_path, "runs", "--json").stdout)
    held.close()
    assert result.returncode == 0 and "\x1b" not in result.stdout
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [line[:2] for line in lines] == [
        ["run", "state"], [RUN, "published"], ["cut", "stopped"], ["works", "running"], ["broken", "damaged"],
    ]  # fmt: skip
    assert lines[1][2:4] == ["fixed", "$0.55"]
    first = machine["runs"][0]
    assert (first["repository"], first["number"], first["verdict"]) == ("acme/calc", 7, "fixed")
    assert (first["pull_request"], first["steps"]) == ("https://forge.test/acme/calc/pull/8", 6)


def test_a_dry_run_is_not_listed_as_published(tmp_path: Path) -> None:
    log = store_log(tmp_path, RUN, full_run())
    log.write_text(log.read_text().replace("https://forge.test/acme/calc/pull/8", "dry-run"))
    (run,) = json.loads(patchwright(tmp_path, "runs", "--state", "dry-run", "--json").stdout)["runs"]
    assert (run["state"], run["verdict"], run["pull_request"]) == ("dry-run", "fixed", None)


def test_only_the_newest_runs_are_listed_without_all(tmp_path: Path) -> None:
    for number in range(23):
        store_log(tmp_path, f"run-{number}", run_of(started()))
    assert len(patchwright(tmp_path, "runs").stdout.splitlines()) == 1 + 20
    assert len(patchwright(tmp_path, "runs", "--all").stdout.splitlines()) == 1 + 23


@pytest.fixture
def three(tmp_path: Path) -> Path:
    """A data directory with `calc-9-b` (newest), `calc-9-a`, and the run of seen_runs with its subagent."""
    wide = "\u754c" * 5 + " division by zero where nothing was measured, and a long story about it"
    logs = [
        store_log(tmp_path, "calc-9-b", run_of(started(title=wide))),
        store_log(tmp_path, "calc-9-a", run_of(started(title="Nine"))),
        store_log(tmp_path, RUN, full_run()),
        store_log(tmp_path, CHILD, child_run()),
    ]
    for age, log in enumerate(logs):
        os.utime(log, (time.time() - 7200 - age, time.time() - 7200 - age))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("NINE",), ["calc-9-a"]),
        (("calc-9",), ["calc-9-b", "calc-9-a"]),
        (("acme/calc#7", "--state", "published"), [RUN]),
        (("--verdict", "fixed"), [RUN]),
        (("--verdict", "regressed"), []),
    ],
)
def test_runs_are_filtered_by_text_state_and_verdict(
    three: Path, arguments: tuple[str, ...], names: list[str]
) -> None:
    result = json.loads(patchwright(three, "runs", "--json", *arguments).stdout)
    assert [one["run"] for one in result["runs"]] == names
    if not names:
        assert patchwright(three, "runs", *arguments).stdout.startswith("There are no runs that match in ")


@pytest.mark.parametrize(
    ("given", "meant"), [("last", "calc-9-b"), ("acme", RUN), ("calc-9-a", "calc-9-a"), (CHILD, CHILD)]
)
def test_a_run_is_found_by_prefix_or_as_last(three: Path, given: str, meant: str) -> None:
    result = patchwright(three, "view", given, "--json")
    assert json.loads(result.stdout) == {"run": meant, "file": str(three / "runs" / meant / "view.html")}
    first = json.loads(patchwright(three, "export", given).stdout.partition("\n")[0])
    assert first["run"] == meant


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (("view", "calc-9"), "`calc-9` matches `calc-9-b`, `calc-9-a`. Type more of the name."),
        (("view", "calk-9-a"), "Similar names: `calc-9-a`, `calc-9-b`"),
        (("export", "../x"), "`../x` is not the name of a run"),
        (("replay", "\x1b[2J" * 99), "is not the name of a run"),
        (("view", ""), "is not the name of a run"),
        (("resolve", "--continue", "zzz", "--model", "m"), "There is no run `zzz` in "),
        (
            ("resolve", "--continue", "acme", "--out", "f", "--model", "m"),
            "--out works only with a local repository",
        ),
        (("runs", "--state", "sleeping"), "--state must be one of running, published, "),
        (("runs", "--nonsense"), "There is no option --nonsense."),
        (("resolve", "--quiet", "--verbose"), "not allowed with argument"),
    ],
)
def test_usage_errors_are_reported_as_text_and_json(
    three: Path, arguments: tuple[str, ...], result: str
) -> None:
    output = patchwright(three, *arguments)
    assert output.returncode == 2 and result in output.stderr and "\x1b" not in output.stderr
    if arguments[0] != "export":
        machine = patchwright(three, *arguments, "--json")
        value = json.loads(machine.stdout)
        assert (value["outcome"], value["exit_code"], machine.returncode) == ("error", 2, 2)
        assert result in value["error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        (
            120,
            [
                "run          state      verdict  cost   age  about",
                "calc-9-b     stopped                    2 h  acme/calc#7 \u754c\u754c\u754c\u754c\u754c division",
                "calc-9-a     stopped                    2 h  acme/calc#7 Nine",
                "acme-calc-7  published  fixed    $0.55  2 h  acme/calc#7 add() subtracts",
            ],
        ),
        (
            30,
            [
                "calc-9-b     stopped",
                "                  2 h",
                "  acme/calc#7 \u754c\u754c\u754c\u754c\u754c di",
            ],
        ),
    ],
)
async def test_the_list_fits_the_terminal(three: Path, columns: int, lines: list[str]) -> None:
    environ = {"PATH": os.environ["PATH"], "PATCHWRIGHT_DATA": str(three), "TERM": "xterm"}
    with open_screen(columns, 30) as (screen, _):
        process = screen.run([sys.executable, "-m", "patchwright", "runs"], environ)
        await screen.until(lambda _: process.poll() is not None)
        assert [result[: len(line)] for result, line in zip(screen.lines, lines, strict=False)] == lines
        assert all(display_width(line) < columns for line in screen.lines)
        assert screen.colors("published") == {"green"}


def test_partly_known_and_unknown_costs_are_listed_as_such(tmp_path: Path) -> None:
    known = model_reply("a")
    unknown = known.model_copy(update={"usage": known.usage.model_copy(update={"usd": None})})
    store_log(tmp_path, "partly", run_of(started(), known, unknown))
    store_log(tmp_path, "wholly", run_of(started(), unknown))
    listed = json.loads(patchwright(tmp_path, "runs", "--json").stdout)["runs"]
    assert {one["run"]: (one["cost_usd"], one["cost_usd_at_least"]) for one in listed} == {
        "partly": (None, 0.01),
        "wholly": (None, None),
    }
    lines = patchwright(tmp_path, "runs").stdout.splitlines()
    assert any("  at least $0.01  " in line for line in lines) and any(
        "  unknown  " in line for line in lines
    )


@pytest.mark.slow
async def test_a_view_is_opened_in_a_terminal_with_a_browser(three: Path) -> None:
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
        with open_screen(200) as (screen, _):
            process = screen.run([sys.executable, "-m", "patchwright", "view", *arguments], around)
            await screen.until(lambda _, process=process: process.poll() is not None)  # type: ignore[misc]
            assert process.returncode == 0 and "view.html" in screen.lines[0] and len(screen.lines) == 1
        assert opened.read_text().splitlines() == [page] * opens


@pytest.mark.parametrize("arguments", [("runs", "--all"), ("replay", RUN), ("export", RUN), ("doctor",)])
def test_a_closed_pipe_is_no_error(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    many = (each for n in range(200) for each in step(str(n), RunShell(command="yes"), shell_result("y\n")))
    store_log(tmp_path, RUN, run_of(started(), *many))
    for number in range(20):
        store_log(tmp_path, f"{number}-{'long' * 40}", run_of(started()))
    command = f"{shlex.join((*preloaded_command(), *arguments))} | true"
    result = subprocess.run(
        ["bash", "-c", command], env=environment(tmp_path), capture_output=True, timeout=60
    )
    assert result.stderr == b""


def test_an_empty_data_directory_is_reported(tmp_path: Path) -> None:
    assert patchwright(tmp_path, "runs").stdout == f"There are no runs in {tmp_path / 'runs'}.\n"


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        (("view", "acme-8"), "There is no run `acme-8`"),
        (("export", "../x"), "is not the name of a run"),
        (("view", "acme-7", "--out", "/"), "Cannot write /: "),
        (("export", "acme-7", "--out", "/nowhere/at/all"), "Cannot write /nowhere/at/all: "),
    ],
)
def test_a_run_that_cannot_be_viewed_is_reported_in_a_sentence(
    data: Path, arguments: tuple[str, ...], result: str
) -> None:
    shown = patchwright(data, *arguments)
    assert shown.returncode in (1, 2) and result in shown.stderr and "Traceback" not in shown.stderr


def test_a_missing_browser_is_reported(data: Path) -> None:
    result = patchwright(data, "view", "acme-7", "--open", PATH="/nowhere")
    assert result.returncode == 0 and result.stdout.endswith("view.html\n")
    assert result.stderr == "No browser found. Open the file yourself.\n"
