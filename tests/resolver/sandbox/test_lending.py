"""Secrets that are lent to the command that names them, with a real shell."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from resolver.domain import Repo
from resolver.errors import SettingsError
from resolver.sandbox.lending import Lending, Source, read_secrets
from resolver.secrets import HIDDEN, Masked, Secrets
from runtime.actions import RunShell
from runtime.local import LocalSandboxes
from runtime.observations import Failed, Ran
from runtime.sandbox import Sandbox

REPO = Repo(owner="acme", name="calc")
VALUE = "hunter2-$HOME-'quoted'"


@pytest.fixture
async def sandbox(short_tmp: Path) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(short_tmp, os.environ).open("lending") as opened:
        yield opened


def fixed(*values: str) -> Source:
    """Another value each time, as of a token that is rotated."""
    left = iter(values)

    async def source() -> str:
        return next(left)

    return source


def lent(sandbox: Sandbox, **sources: Source) -> Masked:
    hidden = Secrets()
    return Masked(Lending(sandbox, sources, hidden), hidden)


async def output(sandbox: Masked | Sandbox, command: str) -> str:
    seen = await sandbox.act(RunShell(command=command))
    assert isinstance(seen, Ran), seen
    return seen.output


async def test_a_command_that_names_a_secret_gets_it_and_the_next_does_not(sandbox: Sandbox) -> None:
    masked = lent(sandbox, DB_PASSWORD=fixed(VALUE))
    assert await output(
        masked, 'echo "${#DB_PASSWORD}"; sh -c "test -n \\"\\$DB_PASSWORD\\" && echo exported"'
    ) == (f"{len(VALUE)}\nexported\n")
    assert await output(masked, 'env | grep -c hunter2; declare -p | grep -c "hunter2-[^ ]*="') == "0\n0\n"


async def test_what_it_prints_is_masked_in_plain_and_in_base64(sandbox: Sandbox) -> None:
    masked = lent(sandbox, DB_PASSWORD=fixed(VALUE, VALUE))
    assert await output(masked, 'echo "it is $DB_PASSWORD"') == f"it is {HIDDEN}\n"
    encoded = await output(masked, 'printf "%s" "$DB_PASSWORD" | base64 -w0')
    assert HIDDEN in encoded
    control = Lending(sandbox, {"DB_PASSWORD": fixed(VALUE)}, Secrets())
    assert await output(control, 'echo "it is $DB_PASSWORD"') == f"it is {VALUE}\n"


async def test_a_command_that_does_not_name_it_runs_without_it(sandbox: Sandbox) -> None:
    masked = lent(sandbox, DB_PASSWORD=fixed())
    assert await output(masked, "echo ${MY_DB_PASSWORD-none} ${DB_PASSWORDS-none}") == "none none\n"


async def test_a_rotated_value_is_lent_at_the_next_command_and_masked_too(sandbox: Sandbox) -> None:
    masked = lent(sandbox, TOKEN=fixed("first-value", "second-value"))
    await output(masked, "echo $TOKEN > kept")
    assert await output(masked, "echo $TOKEN; cat kept") == f"{HIDDEN}\n{HIDDEN}\n"
    assert await output(sandbox, "cat kept") == "first-value\n"


async def test_two_runs_do_not_share_values(sandbox: Sandbox) -> None:
    await output(lent(sandbox, TOKEN=fixed("first-value")), "echo $TOKEN")
    assert await output(lent(sandbox), "echo ${TOKEN-none}") == "none\n"


async def test_the_exit_code_and_the_shells_state_are_as_without_it(sandbox: Sandbox) -> None:
    masked = lent(sandbox, TOKEN=fixed("first-value", "second-value"))
    seen = await masked.act(RunShell(command="cd /; kept=1; : $TOKEN; false"))
    assert isinstance(seen, Ran) and (seen.exit_code, seen.cwd) == (1, "/")
    assert await output(masked, "echo $kept ${TOKEN:+lent}") == "1 lent\n"


# --- the operator's file -------------------------------------------------------------------------------------------


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


async def test_a_value_is_a_text_or_says_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of a file\n")
    path = written(
        tmp_path / "secrets.toml",
        '["Acme/Calc"]\nA = "plain"\nB = { env = "OPERATORS" }\nC = { file = "token" }\n'
        'D = { command = "printf of-a-command" }\n["acme/other"]\nE = "not ours"\n',
    )
    sources = read_secrets(path, REPO, {"OPERATORS": "of the environment"})
    assert {name: await source() for name, source in sources.items()} == {
        "A": "plain",
        "B": "of the environment",
        "C": "of a file",
        "D": "of-a-command",
    }
    assert read_secrets(path, Repo(owner="x", name="y"), {}) == {}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{ env = "NOT_SET" }', "the operator's variable NOT_SET is not set"),
        ('{ file = "absent" }', "the operator's file cannot be read"),
        ('{ command = "false" }', "the operator's command ended with exit code 1"),
        ('{ command = "no-such-program-here" }', "the operator's command cannot be started"),
    ],
)
async def test_a_secret_that_is_not_to_be_had_is_told_and_the_command_does_not_run(
    tmp_path: Path, sandbox: Sandbox, value: str, reason: str
) -> None:
    path = written(tmp_path / "secrets.toml", f'["acme/calc"]\nTOKEN = {value}\n')
    lending = Lending(sandbox, read_secrets(path, REPO, {}), Secrets())
    seen = await lending.act(RunShell(command="touch ran; echo $TOKEN"))
    assert seen == Failed(reason="refused", message=f"the secret TOKEN is not to be had: {reason}")
    assert await output(sandbox, "ls") == ""


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        ("x = 1", 0o644, "can be read by others than its owner: chmod 600"),
        ("x = ", 0o600, "cannot be read: Invalid value"),
        ('"acme/calc" = 1', 0o600, "`acme/calc` must be a table"),
        ('["acme/calc"]\n"A B" = "x"', 0o600, "A B cannot be the name of an environment variable"),
        ('["acme/calc"]\nA = { vault = "x" }', 0o600, 'A must be a text, { env = "NAME" }'),
        ('["acme/calc"]\nA = 1', 0o600, 'A must be a text, { env = "NAME" }'),
    ],
)
def test_a_file_that_is_not_right_is_told_with_what_is_wrong(
    tmp_path: Path, text: str, mode: int, told: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        read_secrets(written(tmp_path / "secrets.toml", text, mode), REPO, {})
    assert told in str(raised.value)
