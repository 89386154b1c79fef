"""The command line: help, usage errors and shell completion."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchwright.bot.cli import main
from patchwright.bot.cli.main import build_parser
from patchwright.bot.terminal.exit_codes import COMMON_EXIT_CODES, JOB_EXIT_CODES
from patchwright.resolver.settings.settings import Settings
from tests.bot.screens import Screen, open_screen
from tests.preloaded_command import preloaded_command

BESIDE = Path(sys.executable).parent
COMMANDS: dict[str, argparse.ArgumentParser] = build_parser()._subparsers._group_actions[0].choices  # type: ignore


def patchwright(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    around = {"PATH": f"{BESIDE}:{os.environ['PATH']}", **environ}
    command = [*preloaded_command(), *arguments]
    return subprocess.run(command, env=around, capture_output=True, text=True, timeout=60, check=False)


def test_ctrl_c_while_the_modules_are_loaded_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "build_parser", interrupt)
    assert (main.main([]), capsys.readouterr().err) == (130, "Stopped.\n")


def test_without_a_command_it_shows_how_to_get_started() -> None:
    result = patchwright()
    assert result.returncode == 2 and "Get started:\n\n  patchwright demo " in result.stdout
    assert all(len(line) <= 100 for line in result.stdout.splitlines())
    named = {line.split()[1] for line in result.stdout.splitlines() if line.startswith("  patchwright ")}
    assert len(named) >= 4 and named <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example_and_its_exit_codes(command: str) -> None:
    help_text = COMMANDS[command].format_help()
    assert re.search(rf"^  (\S+ )*patchwright {command}\b", help_text, re.MULTILINE)
    for code, meaning in COMMON_EXIT_CODES.items():
        assert re.search(rf"  {code} +{meaning}", help_text)
    assert ("settings are read from patchwright.toml" in help_text) == ("--config FILE" in help_text)
    if command in ("resolve", "action"):
        assert all(meaning in " ".join(help_text.split()) for meaning in JOB_EXIT_CODES.values())


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("command", [*COMMANDS, ""])
def test_help_fits_the_terminal_except_for_examples(
    monkeypatch: pytest.MonkeyPatch, command: str, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    help_text = (COMMANDS[command] if command else build_parser()).format_help().splitlines()
    copied = re.compile(r"  (\S+ )*patchwright ")
    assert [line for line in help_text if len(line) > columns and not copied.match(line)] == []


def test_all_variables_in_the_help_are_settings() -> None:
    help_text = "".join(command.format_help() for command in COMMANDS.values())
    named = set(re.findall(r"\bPATCHWRIGHT_([A-Z_]+)", help_text))
    assert {"MODEL", "MAX_USD", "TIMEOUT"} <= named
    assert {name.lower() for name in named} - set(Settings.model_fields) == {
        "api_key"
    }  # of a server's client


@pytest.mark.parametrize("command", ["resolve", "runs", "export", "docker-proxy"])
def test_a_usage_error_is_one_json_object_with_json(command: str) -> None:
    result = patchwright(command, "--no-such-option", "x", "y", "--json")
    assert result.returncode == 2 and result.stderr.startswith("patchwright: ")
    value = json.loads(result.stdout)
    assert (value["outcome"], value["kind"], value["exit_code"]) == ("error", "UsageError", 2)
    assert value["error"] in result.stderr


def test_a_file_as_data_directory_is_a_usage_error() -> None:
    result = patchwright("runs", PATCHWRIGHT_DATA=__file__)
    assert (result.returncode, result.stdout) == (2, "") and f"{__file__} is a file" in result.stderr


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, patchwright.bot.cli.main as cli; cli.build_parser().format_help(); print(*sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert {"pydantic", "asyncio", "argcomplete", "json"} & set(result.stdout.split()) == set()


# --- completion ---


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Yields the environment of a user with two runs, `acme-calc-7` and `nightly-9`."""
    for name in ("acme-calc-7", "nightly-9"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "events.jsonl").touch()
    (tmp_path / "a.md").touch()
    yield {
        "PATH": f"{BESIDE}:{os.environ['PATH']}", "HOME": str(tmp_path), "PATCHWRIGHT_DATA": str(tmp_path),
        "TERM": "xterm", "PS1": "$ ", "LANG": "C.UTF-8",
    }  # fmt: skip


TYPED = [
    ("patchwright vi", r"patchwright view $"),
    ("patchwright resolve --dr", r"--dry-run $"),
    ("patchwright resolve --mod", r"--model $"),
    ("patchwright view ac", r"view acme-calc-7 $"),
    ("patchwright replay ni", r"replay nightly-9 $"),
    ("patchwright resolve --continue ac", r"--continue acme-calc-7 $"),
    ("patchwright runs --state pub", r"--state published $"),
    ("patchwright resolve --issue a.", r"--issue a.md $"),
]


async def completes(screen: Screen, typed: str, becomes: str) -> None:
    screen.press(f"{typed}\t")
    await screen.until(lambda seen: re.search(becomes, seen.line + " ") is not None)
    screen.press("\x15\r")  # Clears the line.


@pytest.mark.slow
async def test_bash_completes_commands_options_values_and_runs(runs: dict[str, str], tmp_path: Path) -> None:
    with open_screen(120) as (screen, _):
        shell = screen.run(["bash", "--norc", "--noprofile", "-i"], runs, tmp_path)
        screen.press('eval "$(patchwright completion bash)"; echo re"ady"\r')
        await screen.until("(?m)^ready")
        for typed, becomes in TYPED:
            await completes(screen, typed, becomes)
        screen.press("exit\r")
        await screen.until(lambda _: shell.poll() is not None)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
async def test_zsh_completes_commands_options_values_and_runs(runs: dict[str, str], tmp_path: Path) -> None:
    with open_screen(120) as (screen, _):
        shell = screen.run(["zsh", "-f", "-i"], runs, tmp_path)
        screen.press(
            'autoload -U compinit; compinit -u -D; eval "$(patchwright completion zsh)"; echo re"ady"\r'
        )
        await screen.until("(?m)^ready")
        for typed, becomes in TYPED:
            await completes(screen, typed, becomes)
        screen.press("exit\r")
        await screen.until(lambda _: shell.poll() is not None)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(("typed", "becomes"), TYPED)
def test_fish_completes_commands_options_values_and_runs(
    runs: dict[str, str], tmp_path: Path, typed: str, becomes: str
) -> None:
    script = f"patchwright completion fish | source; complete -C '{typed}'"
    result = subprocess.run(
        ["fish", "--no-config", "-c", script],
        env=runs,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    offered = [line.split("\t")[0] for line in result.stdout.splitlines()]
    assert offered == [becomes.split()[-2] if " " in becomes[:-2] else becomes[:-2]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shell", "before", "defined"),
    [("bash", ":", "complete -p patchwright"),
     ("zsh", "echo 'autoload -U compinit; compinit -u -D' > ~/.zshrc", '[ -n "${_comps[patchwright]}" ]'),
     ("fish", ":", "complete -C 'patchwright vi' | string match -q 'view*'")],
)  # fmt: skip
def test_the_completion_command_works_in_an_empty_home(
    runs: dict[str, str], tmp_path: Path, shell: str, before: str, defined: str
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    help_text = COMMANDS["completion"].format_help()
    (line,) = re.findall(rf"^  (.*patchwright completion {shell} .*)$", help_text, re.MULTILINE)
    for script in (before, line, defined):
        subprocess.run(
            [shell, "-i", "-c", script],
            env=runs,
            cwd=tmp_path,
            timeout=60,
            check=True,
            stdin=subprocess.DEVNULL,
        )


@pytest.mark.slow
def test_invalid_settings_do_not_break_completion(runs: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "patchwright.toml").write_text("no toml")
    command = (
        'eval "$(patchwright completion bash)"; COMP_LINE="patchwright view a" COMP_POINT=18 COMP_TYPE=9'
    )
    ends = (
        "COMP_WORDS=(patchwright view a) COMP_CWORD=2; _python_argcomplete patchwright; echo ${#COMPREPLY[@]}"
    )
    script = f"{command}; {ends}"
    result = subprocess.run(
        ["bash", "-c", script], env=runs, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (result.stdout.strip(), result.returncode, result.stderr) == ("0", 0, "")


# --- mistakes ---


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("resovle",), "There is no command resovle. Did you mean resolve? See `patchwright --help`."),
        (("frobnicate",), "There is no command frobnicate. See `patchwright --help`."),
        (("--vesion",), "There is no option --vesion. Did you mean --version? See `patchwright --help`."),
        (("resolve", "--sanbox=local"), "There is no option --sanbox. Did you mean --sandbox?"),
        (("resolve", "--sandbox", "lokal"), "--sandbox: 'lokal' is not one of docker, local, auto. Did you mean"),
        (("resolve", "--max-steps", "ten"), "--max-steps: 'ten' is not a whole number."),
        (("resolve", "--max-usd", "two"), "--max-usd: 'two' is not a number. Correct or remove it."),
        (("resolve", "--max-usd", "-1"), "--max-usd: it must be greater than 0. Correct or remove it."),
        (("resolve", "--base-url", "host:80"), "--base-url: the URL must start with https:// or http://. Correct"),
        (("probe", "--base-url", "http://[::1"), "--base-url: the URL is not valid. Correct or remove it."),
        (("serve", "--port", "eighty"), "--port: 'eighty' is not a whole number. See `patchwright serve --help`."),
        (("completion", "fsh"), "shell: 'fsh' is not one of bash, zsh, fish. Did you mean fish?"),
        (("replay",), "RUN is missing. See `patchwright replay --help`."),
        (("docker-proxy",), "--listen is missing."),
        (("resolve", "a", "b"), "The argument b is not expected here."),
        (("runs", "--config", "/"), "/ cannot be read: Is a directory. Fix or remove the file."),
        (("resolve", "a/b#1", "--model", "openai/x"), "GitHub's API at 127.0.0.1:9 cannot be reached (connection"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_one_sentence(
    arguments: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    given = {"PATCHWRIGHT_MODEL_API_KEY": "k", "GITHUB_TOKEN": "t", "GITHUB_SERVER_URL": "http://127.0.0.1:9"}
    result = patchwright(*arguments, HOME=str(tmp_path), **given)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"patchwright: {sentence}") and result.stderr.count("\n") == 1


def test_a_missing_token_is_reported_before_the_network_is_used(tmp_path: Path) -> None:
    given = {
        "PATCHWRIGHT_MODEL_API_KEY": "k",
        "GITHUB_SERVER_URL": "http://127.0.0.1:9",
        "HOME": str(tmp_path),
    }
    down = ("--model", "openai/x", "--base-url", "http://127.0.0.1:9/v1")
    result = patchwright("resolve", "a/b#1", *down, **given)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("patchwright: GITHUB_TOKEN is not set"), result.stderr
