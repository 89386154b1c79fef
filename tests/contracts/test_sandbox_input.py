"""Interactive commands, and output that is too long to read at once."""

import asyncio

import pytest

from patchwright.runtime.actions import ReadBytes, RunShell, SendInput
from patchwright.runtime.observations import FileContent, ShellResult
from patchwright.runtime.sandbox import Sandbox
from tests.contracts.sandbox_actions import failed, printed, shell


async def started(sandbox: Sandbox, command: str, timeout: int = 1) -> ShellResult:
    ran = await sandbox.act(RunShell(command=command, timeout=timeout, interactive=True))
    assert isinstance(ran, ShellResult), ran
    return ran


async def typed(sandbox: Sandbox, text: str = "", key=None, timeout: int = 5) -> ShellResult:
    ran = await sandbox.act(SendInput(text=text, key=key, timeout=timeout))
    assert isinstance(ran, ShellResult), ran
    return ran


@pytest.mark.slow
async def test_a_program_that_prompts_is_answered_until_it_ends(sandbox: Sandbox) -> None:
    asking = "read -p 'name? ' name; echo hello $name; read -p 'age? ' age; echo $age; (exit 3)"
    first = await started(sandbox, asking)
    assert (first.output, first.exit_code) == ("name? ", None)
    assert first.note == "the command is still running: continue with send_input"
    second = await typed(sandbox, "Ada", timeout=1)
    assert (second.output, second.exit_code) == ("hello Ada\nage? ", None)
    third = await typed(sandbox, "36")
    assert (third.output, third.exit_code, third.note) == ("36\n", 3, None)
    assert await printed(sandbox, "echo $name $age") == "Ada 36\n"


async def test_an_interactive_command_that_ends_in_time_is_like_any_other(sandbox: Sandbox) -> None:
    ran = await started(sandbox, "echo done; (exit 5)", timeout=20)
    assert (ran.output, ran.exit_code, ran.note) == ("done\n", 5, None)


@pytest.mark.slow
async def test_a_debugger_can_be_used_interactively(sandbox: Sandbox) -> None:
    await shell(sandbox, "printf 'x = 20\\ny = x + 1\\nprint(y)\\n' > prog.py")
    output = (await started(sandbox, "python3 -m pdb prog.py")).output
    async with asyncio.timeout(60):
        while not output.endswith("(Pdb) "):
            output += (await typed(sandbox, timeout=1)).output
        output = (await typed(sandbox, "next\nnext\np x + 22", timeout=1)).output
        while "42" not in output:
            output += (await typed(sandbox, timeout=1)).output
    assert (await typed(sandbox, key="ctrl-d", timeout=20)).exit_code is not None


async def test_ctrl_c_interrupts_and_leaves_the_shell_with_its_state(sandbox: Sandbox) -> None:
    await shell(sandbox, "X=kept; cd /")
    assert (await started(sandbox, "echo begun; sleep 72; echo never")).output == "begun\n"
    ended = await typed(sandbox, key="ctrl-c")
    assert (ended.exit_code, ended.cwd) == (130, "/") and "never" not in ended.output
    assert await printed(sandbox, "echo $X") == "kept\n"


async def test_ctrl_d_ends_the_input(sandbox: Sandbox) -> None:
    await started(sandbox, "sort; echo sorted")
    assert (await typed(sandbox, "b\na", key="ctrl-d")).output == "a\nb\nsorted\n"


@pytest.mark.slow
async def test_a_command_that_ignores_ctrl_c_is_killed(sandbox: Sandbox) -> None:
    await started(sandbox, "trap '' INT; python3 -c 'while True: pass'")
    assert (await typed(sandbox, key="ctrl-c", timeout=1)).exit_code is None
    killed = await typed(sandbox, key="kill")
    assert killed.note is not None and "the command was killed with everything it had started" in killed.note
    assert await printed(sandbox, "echo again") == "again\n"


async def test_the_shell_is_refused_while_a_command_waits_for_input(sandbox: Sandbox) -> None:
    await started(sandbox, "cat > got")
    refused = await failed(sandbox, RunShell(command="ls"))
    assert (
        refused.reason == "refused" and "`cat > got`" in refused.message and "send_input" in refused.message
    )
    await typed(sandbox, "text", key="ctrl-d")
    assert await printed(sandbox, "cat got") == "text\n"


async def test_input_without_a_waiting_command_is_refused(sandbox: Sandbox) -> None:
    assert (await failed(sandbox, SendInput(text="x"))).reason == "refused"
    await shell(sandbox, "true")
    assert (await failed(sandbox, SendInput(key="ctrl-c"))).reason == "refused"


@pytest.mark.slow
async def test_a_command_that_ended_meanwhile_is_reported_before_the_next(sandbox: Sandbox) -> None:
    await started(sandbox, "sleep 1.3; echo late; (exit 4)")
    await sandbox.act(RunShell(command="true", timeout=1))  # refused: the command still runs
    waited = await typed(sandbox, timeout=10)
    assert (waited.output, waited.exit_code) == ("late\n", 4)


@pytest.mark.slow
async def test_unread_input_does_not_reach_later_commands(sandbox: Sandbox) -> None:
    await started(sandbox, "sleep 2")
    await typed(sandbox, "stale\nstale", timeout=10)
    await started(sandbox, "read line; echo [$line]")
    assert (await typed(sandbox, "fresh")).output == "[fresh]\n"


async def test_a_line_that_the_terminal_would_cut_is_refused(sandbox: Sandbox) -> None:
    await started(sandbox, "wc -c")
    assert (await failed(sandbox, SendInput(text="\u20ac" * 2000))).reason == "malformed"
    assert (await typed(sandbox, "x" * 3000, key="ctrl-d")).output == "3001\n"


@pytest.mark.slow
@pytest.mark.parametrize("end", ["exit 3", "kill -9 $$"])
async def test_a_shell_that_ends_under_an_interactive_command_is_replaced(sandbox: Sandbox, end: str) -> None:
    await started(sandbox, f"read x; {end}")
    ended = await typed(sandbox, "go")
    assert ended.note is not None and "a new shell starts" in ended.note
    assert await printed(sandbox, "echo again") == "again\n"


# --- output ---------------------------------------------------------------------------------------------------


async def test_clipped_output_is_complete_in_a_scratch_file(sandbox: Sandbox) -> None:
    ran = await shell(sandbox, "seq 20000")
    path = f"{sandbox.scratch}/output-1.txt"
    assert ran.note == f"{path} contains all of this output"
    whole = await sandbox.act(ReadBytes(path=path))
    assert isinstance(whole, FileContent)
    assert whole.content == b"".join(b"%d\n" % n for n in range(1, 20001))


async def test_a_line_of_a_hundred_megabytes_is_cut_and_the_shell_continues(sandbox: Sandbox) -> None:
    ran = await shell(sandbox, "head -c 100000000 /dev/zero | tr '\\0' x; echo", timeout=60)
    assert len(ran.output) < 30_200
    assert "from inside line 1 to inside line 1 of 1 left out: 99,970,001 characters" in ran.output
    assert ran.note is not None and ran.note.endswith("contains the first and last parts of this output")
    assert await printed(sandbox, "echo next") == "next\n"


async def test_old_output_files_are_deleted(sandbox: Sandbox) -> None:
    for _ in range(18):
        await shell(sandbox, "seq 10000")
    assert await printed(sandbox, f"ls {sandbox.scratch} | grep -c output-") == "16\n"


async def test_only_an_interactive_command_has_a_terminal(sandbox: Sandbox) -> None:
    where = "for n in 0 1 2; do [ -t $n ] && echo terminal || echo none; done"
    assert await printed(sandbox, where) == "none\nnone\nnone\n"
    prompts = await started(sandbox, where, timeout=20)
    assert prompts.output == "terminal\nterminal\nterminal\n"
    assert await printed(sandbox, where) == "none\nnone\nnone\n"
    assert await printed(sandbox, "tput cols 2>/dev/null || echo $COLUMNS") == "200\n"


@pytest.mark.slow
async def test_what_python_printed_before_its_timeout_is_kept(sandbox: Sandbox) -> None:
    ran = await shell(sandbox, "python3 -c 'print(\"begun\"); import time; time.sleep(67)'", timeout=5)
    assert (ran.output, ran.exit_code) == ("begun\n", None)


async def test_a_pager_and_a_progress_bar_become_plain_lines(sandbox: Sandbox) -> None:
    await shell(
        sandbox, "git init -q . && git config user.email a@b.c && git config user.name a && echo x > f"
    )
    await shell(sandbox, "git add f && git commit -qm first && git commit -q --allow-empty -m second")
    assert await printed(sandbox, "git log --format=%s") == "second\nfirst\n"
    bar = "for i in 1 2 3; do printf 'fetching %d/3\\r' $i; done; printf '\\nend\\n'"
    assert await printed(sandbox, bar) == "fetching 3/3\nend\n"
