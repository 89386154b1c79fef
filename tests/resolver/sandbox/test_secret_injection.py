"""Secrets are injected into the command that names them, in a real shell."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from patchwright.resolver.domain import Repo
from patchwright.resolver.errors import SettingsError
from patchwright.resolver.sandbox.secret_injection import SecretInjectingSandbox
from patchwright.resolver.sandbox.secret_sources import SecretSource, load_secret_sources
from patchwright.resolver.secrets import SECRET_PLACEHOLDER, MaskingSandbox, Secrets
from patchwright.runtime.actions import RunShell
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from patchwright.runtime.observations import ActionFailure, ShellResult
from patchwright.runtime.sandbox import Sandbox

REPO = Repo(owner="acme", name="calc")
VALUE = "hunter2-$HOME-'quoted'"


@pytest.fixture
async def sandbox(short_tmp: Path) -> AsyncIterator[Sandbox]:
    async with LocalSandboxes(short_tmp, os.environ).open("lending") as opened:
        yield opened


class Rotating:
    """A source of a program's own, which has another value each time, like a token that is rotated."""

    def __init__(self, *values: str) -> None:
        self._left = iter(values)

    async def get_value(self) -> str:
        return next(self._left)


def fixed(*values: str) -> SecretSource:
    return Rotating(*values)


def injecting(sandbox: Sandbox, **sources: SecretSource) -> MaskingSandbox:
    hidden = Secrets()
    return MaskingSandbox(SecretInjectingSandbox(sandbox, sources, hidden), hidden)


async def output(sandbox: MaskingSandbox | Sandbox, command: str) -> str:
    result = await sandbox.act(RunShell(command=command))
    assert isinstance(result, ShellResult), result
    return result.output


async def test_a_command_that_names_a_secret_gets_it_and_the_next_does_not(sandbox: Sandbox) -> None:
    masked = injecting(sandbox, DB_PASSWORD=fixed(VALUE))
    assert await output(
        masked, 'echo "${#DB_PASSWORD}"; sh -c "test -n \\"\\$DB_PASSWORD\\" && echo exported"'
    ) == (f"{len(VALUE)}\nexported\n")
    assert await output(masked, 'env | grep -c hunter2; declare -p | grep -c "hunter2-[^ ]*="') == "0\n0\n"


async def test_a_printed_secret_is_masked_in_plain_and_base64(sandbox: Sandbox) -> None:
    masked = injecting(sandbox, DB_PASSWORD=fixed(VALUE, VALUE))
    assert await output(masked, 'echo "it is $DB_PASSWORD"') == f"it is {SECRET_PLACEHOLDER}\n"
    encoded = await output(masked, 'printf "%s" "$DB_PASSWORD" | base64 -w0')
    assert SECRET_PLACEHOLDER in encoded
    control = SecretInjectingSandbox(sandbox, {"DB_PASSWORD": fixed(VALUE)}, Secrets())
    assert await output(control, 'echo "it is $DB_PASSWORD"') == f"it is {VALUE}\n"


async def test_a_command_that_does_not_name_a_secret_runs_without_it(sandbox: Sandbox) -> None:
    masked = injecting(sandbox, DB_PASSWORD=fixed())
    assert await output(masked, "echo ${MY_DB_PASSWORD-none} ${DB_PASSWORDS-none}") == "none none\n"


async def test_a_rotated_value_is_injected_and_masked(sandbox: Sandbox) -> None:
    masked = injecting(sandbox, TOKEN=fixed("first-value", "second-value"))
    await output(masked, "echo $TOKEN > kept")
    assert await output(masked, "echo $TOKEN; cat kept") == f"{SECRET_PLACEHOLDER}\n{SECRET_PLACEHOLDER}\n"
    assert await output(sandbox, "cat kept") == "first-value\n"


async def test_two_runs_do_not_share_secrets(sandbox: Sandbox) -> None:
    await output(injecting(sandbox, TOKEN=fixed("first-value")), "echo $TOKEN")
    assert await output(injecting(sandbox), "echo ${TOKEN-none}") == "none\n"


async def test_two_runs_at_the_same_time_do_not_share_secrets(sandbox: Sandbox, short_tmp: Path) -> None:
    async with LocalSandboxes(short_tmp, os.environ).open("other") as other:
        runs = injecting(sandbox, FIRST=fixed("canary-1")), injecting(other, SECOND=fixed("canary-22"))
        # Each command waits until the other one has its secret.
        meet = f"touch {short_tmp}/$MINE; until [ -e {short_tmp}/1 ] && [ -e {short_tmp}/2 ]; do sleep 0.01; done"
        shown = "echo ${#FIRST} ${#SECOND}; env | grep -c canary"
        seen = await asyncio.gather(
            output(runs[0], f"MINE=1; {meet}; {shown}"), output(runs[1], f"MINE=2; {meet}; {shown}")
        )
    assert seen == ["8 0\n1\n", "0 9\n1\n"]


async def test_secrets_do_not_change_exit_codes_or_shell_state(sandbox: Sandbox) -> None:
    masked = injecting(sandbox, TOKEN=fixed("first-value", "second-value"))
    result = await masked.act(RunShell(command="cd /; kept=1; : $TOKEN; false"))
    assert isinstance(result, ShellResult) and (result.exit_code, result.cwd) == (1, "/")
    assert await output(masked, "echo $kept ${TOKEN:+lent}") == "1 lent\n"


# --- the operator's file -------------------------------------------------------------------------------------------


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


async def test_a_secret_is_a_string_or_a_source(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("of a file\n")
    path = written(
        tmp_path / "secrets.toml",
        '["Acme/Calc"]\nA = "plain"\nB = { env = "OPERATORS" }\nC = { file = "token" }\n'
        'D = { command = "printf of-a-command" }\n["acme/other"]\nE = "not ours"\n',
    )
    sources = load_secret_sources(path, REPO, {"OPERATORS": "of the environment"})
    assert {name: await source.get_value() for name, source in sources.items()} == {
        "A": "plain",
        "B": "of the environment",
        "C": "of a file",
        "D": "of-a-command",
    }
    assert load_secret_sources(path, Repo(owner="x", name="y"), {}) == {}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{ env = "NOT_SET" }', "the operator's variable NOT_SET is not set"),
        ('{ file = "absent" }', "the operator's file cannot be read"),
        ('{ command = "false" }', "the operator's command failed with exit code 1"),
        ('{ command = "no-such-program-here" }', "the operator's command cannot be started"),
    ],
)
async def test_a_command_with_an_unavailable_secret_does_not_run(
    tmp_path: Path, sandbox: Sandbox, value: str, reason: str
) -> None:
    path = written(tmp_path / "secrets.toml", f'["acme/calc"]\nTOKEN = {value}\n')
    lending = SecretInjectingSandbox(sandbox, load_secret_sources(path, REPO, {}), Secrets())
    result = await lending.act(RunShell(command="touch ran; echo $TOKEN"))
    assert result == ActionFailure(reason="refused", message=f"the secret TOKEN is not available: {reason}")
    assert await output(sandbox, "ls") == ""


@pytest.mark.parametrize(
    ("text", "mode", "expected"),
    [
        ("x = 1", 0o644, "is readable by users other than its owner: run chmod 600"),
        ("x = ", 0o600, "cannot be read: Invalid value"),
        ('"acme/calc" = 1', 0o600, "`acme/calc` must be a table"),
        ('["acme/calc"]\n"A B" = "x"', 0o600, "A B cannot be the name of an environment variable"),
        ('["acme/calc"]\nA = { vault = "x" }', 0o600, 'A must be a string, { env = "NAME" }'),
        (
            '["acme/calc"]\nA = { url = "http://example.org/" }',
            0o600,
            "must begin with https:// and contain no",
        ),
        ('["acme/calc"]\nA = { url = "https://a:b@example.org/" }', 0o600, "must begin with https:// and"),
        ('["acme/calc"]\nA = { url = "https://example.org/", max_age = "1" }', 0o600, "in whole seconds"),
        (
            '["acme/calc"]\nA = { url = "https://example.org/", headers = { X = 1 } }',
            0o600,
            "a header of A must be a string, or an env, a file or a command",
        ),
        ('["acme/calc"]\nA = 1', 0o600, 'A must be a string, { env = "NAME" }'),
    ],
)
def test_an_invalid_secrets_file_is_reported_with_the_reason(
    tmp_path: Path, text: str, mode: int, expected: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        load_secret_sources(written(tmp_path / "secrets.toml", text, mode), REPO, {})
    assert expected in str(raised.value)
