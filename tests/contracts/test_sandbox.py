"""The contract of every sandbox implementation."""

import asyncio

import pytest

from patchwright.runtime.actions import (
    CreateFile,
    Execute,
    InsertText,
    ReadBytes,
    ReplaceText,
    RunShell,
    UndoEdit,
    ViewFile,
    WriteBytes,
)
from patchwright.runtime.observations import EditResult, ExecuteResult, FileContent, TextResult, WriteResult
from patchwright.runtime.sandbox import Sandbox
from tests.contracts.sandbox_actions import failed, printed, shell

# --- the shell --------------------------------------------------------------------------------------------------


async def test_the_shell_keeps_directory_variables_functions_and_jobs(sandbox: Sandbox) -> None:
    moved = await shell(
        sandbox, "mkdir -p a/b && cd a/b; export X=1 Y=2; greet() { echo hello $1; }; sleep 50 &"
    )
    assert moved.note == f"the shell is now in {sandbox.root}/a/b"
    ran = await shell(sandbox, "greet $X; env | grep ^Y; jobs -r | wc -l; false")
    assert ran.output == "hello 1\nY=2\n1\n"
    assert ran.exit_code == 1
    assert ran.cwd == f"{sandbox.root}/a/b"
    assert ran.note is None


async def test_an_activated_environment_stays_active(sandbox: Sandbox) -> None:
    script = (
        'PATH="$PWD/env/bin:$PATH"; export PATH; deactivate() { unset VIRTUAL_ENV; }; VIRTUAL_ENV="$PWD/env"'
    )
    await shell(sandbox, f"mkdir -p env/bin && echo '{script}' > env/bin/activate")
    await shell(sandbox, "printf '#!/bin/sh\\necho ours\\n' > env/bin/python && chmod +x env/bin/python")
    await shell(sandbox, ". env/bin/activate")
    ran = await shell(sandbox, "command -v python; python; echo $VIRTUAL_ENV; type -t deactivate")
    environment = f"{sandbox.root}/env"
    assert ran.output == f"{environment}/bin/python\nours\n{environment}\nfunction\n"


async def test_a_change_of_directory_is_reported_once_and_only_if_it_persists(sandbox: Sandbox) -> None:
    commands = ("cd /tmp", "pwd", "(cd / && ls >/dev/null)", f"cd {sandbox.root}", "true")
    notes = [(await shell(sandbox, command)).note for command in commands]
    home = f"the shell is now in {sandbox.root}"
    assert notes == ["the shell is now in /tmp", None, None, home, None]


async def test_the_exit_code_is_that_of_the_last_command(sandbox: Sandbox) -> None:
    codes = [
        (await shell(sandbox, command)).exit_code for command in ("true", "(exit 42)", "no-such-program")
    ]
    assert codes == [0, 42, 127]


async def test_a_here_document_and_a_script_of_many_lines_run_as_typed(sandbox: Sandbox) -> None:
    script = "cat <<'END'\na 'quoted' \"line\" $HOME\nEND\nfor i in 1 2; do\n  echo $i # a comment\ndone\n"
    assert await printed(sandbox, script) == "a 'quoted' \"line\" $HOME\n1\n2\n"


@pytest.mark.parametrize("command", ['echo "oops', "echo $(", "if true; then", "echo a; )", "f() {"])
async def test_unbalanced_input_is_reported_and_leaves_the_shell_usable(
    sandbox: Sandbox, command: str
) -> None:
    await shell(sandbox, "X=kept")
    ran = await shell(sandbox, command)
    assert ran.exit_code not in (0, None)
    assert ran.note is not None and ran.note.startswith("bash cannot parse the command")
    assert await printed(sandbox, "echo $X") == "kept\n"


async def test_a_command_that_reads_input_gets_end_of_file(sandbox: Sandbox) -> None:
    ran = await shell(sandbox, "cat; read answer; echo \"[$answer]\"; python3 -c 'input()'", timeout=10)
    assert ran.output.startswith("[]\n") and "EOFError" in ran.output
    assert await printed(sandbox, "echo next") == "next\n"


async def test_a_timeout_kills_grandchildren_and_returns_what_was_printed(sandbox: Sandbox) -> None:
    await shell(sandbox, "X=kept")
    command = "echo begun; (sleep 61 & echo $! > a; setsid sleep 62 & echo $! > b; wait) | cat; echo never"
    ran = await shell(sandbox, command, timeout=1)
    assert ran.exit_code is None
    assert ran.output == "begun\n"
    assert ran.note is not None and "killed at its timeout of 1 s" in ran.note
    assert "set a longer timeout (up to 1,800 s)" in ran.note and "in the background" in ran.note
    after = await shell(sandbox, "echo $X; kill -0 $(cat a) $(cat b)")
    assert after.output.startswith("kept\n") and after.output.count("No such process") == 2


async def test_a_timeout_spares_older_background_jobs(sandbox: Sandbox) -> None:
    await shell(sandbox, "(sleep 63; true) & echo $! > older")
    await shell(sandbox, "sleep 64", timeout=1)
    assert (await shell(sandbox, "kill -0 $(cat older)")).exit_code == 0


@pytest.mark.parametrize("command", ["while :; do :; done", "sleep 65; sleep 66; sleep 67", "kill -STOP $$"])
async def test_a_timeout_brings_the_shell_back_with_its_state(sandbox: Sandbox, command: str) -> None:
    await shell(sandbox, "X=kept; cd /")
    ran = await shell(sandbox, command, timeout=1)
    assert ran.exit_code is None
    after = await shell(sandbox, "echo $X")
    assert (after.output, after.cwd) == ("kept\n", "/")


@pytest.mark.slow
async def test_a_shell_that_cannot_be_interrupted_is_replaced(sandbox: Sandbox) -> None:
    ran = await shell(sandbox, "trap '' INT; while :; do :; done", timeout=1)
    assert ran.exit_code is None
    assert ran.note is not None and "a new shell starts" in ran.note
    assert await printed(sandbox, "echo again") == "again\n"


@pytest.mark.parametrize(
    ("command", "code", "how"),
    [("exit 3", 3, "ended with status 3"), ("kill -9 $$", None, "SIGKILL"), ("exec true", 0, "status 0")],
)
async def test_a_shell_that_ends_is_replaced_with_a_note(
    sandbox: Sandbox, command: str, code: int | None, how: str
) -> None:
    await shell(sandbox, "X=lost; cd /; sleep 68 & echo $! > /tmp/job-$$; echo /tmp/job-$$")
    ran = await shell(sandbox, f"echo last words; {command}")
    assert ran.output.startswith("last words\n")
    assert (ran.exit_code, ran.cwd) == (code, sandbox.root)
    assert ran.note is not None and how in ran.note
    assert await printed(sandbox, "echo [$X]; pwd") == f"[]\n{sandbox.root}\n"


async def test_a_shell_that_was_killed_between_commands_is_replaced_before_the_next(sandbox: Sandbox) -> None:
    await shell(sandbox, "X=lost; (sleep 0.2; kill -9 $$) &")
    await asyncio.sleep(0.6)
    ran = await shell(sandbox, "echo [$X]; (exit 4)")
    assert (ran.output, ran.exit_code) == ("[]\n", 4)
    assert ran.note is not None and ran.note.startswith(
        "before this command the shell was ended by signal SIGKILL"
    )


async def test_set_e_ends_no_later_command(sandbox: Sandbox) -> None:
    await shell(sandbox, "set -e; true")
    ran = await shell(sandbox, "false; echo goes on")
    assert (ran.output, ran.note) == ("goes on\n", None)


async def test_a_background_job_that_holds_the_output_open_delays_nothing(sandbox: Sandbox) -> None:
    ran = await shell(sandbox, "(until [ -e go ]; do sleep 0.1; done; echo late; touch gone) & echo now")
    assert "now\n" in ran.output and "late" not in ran.output
    waited = await shell(sandbox, "touch go; until [ -e gone ]; do sleep 0.1; done")
    assert "late\n" in waited.output + await printed(sandbox, "echo then")


async def test_ten_megabytes_keep_head_and_tail_and_say_what_is_missing(sandbox: Sandbox) -> None:
    ran = await shell(sandbox, "seq 1000001 2250000")  # 8 bytes per line
    assert ran.output.startswith("1000001\n1000002\n") and ran.output.endswith("2249999\n2250000\n")
    assert 29_000 < len(ran.output) < 30_200
    assert "[... lines 1,876-1,248,125 of 1,250,000 left out: 9,970,000 characters ...]\n" in ran.output
    assert await printed(sandbox, "echo next") == "next\n"


async def test_a_line_of_many_megabytes_is_cut_inside(sandbox: Sandbox) -> None:
    ran = await shell(sandbox, "head -c 20000000 /dev/zero | tr '\\0' x; echo")
    assert len(ran.output) < 30_200
    assert "from inside line 1 to inside line 1 of 1 left out: 19,970,001 characters" in ran.output


async def test_odd_bytes_and_control_codes_become_readable(sandbox: Sandbox) -> None:
    odd = r"printf 'nul \0, bad \xff\xfe, \033[1;31mred\033[0m, \033]0;title\007bell\a\n'; printf '1%%\r50%%\r100%%\n'"
    assert await printed(sandbox, odd) == "nul \ufffd, bad \ufffd\ufffd, red, bell\n100%\n"


async def test_a_command_cannot_forge_its_own_end(sandbox: Sandbox) -> None:
    ran = await shell(sandbox, r"printf '\0%s 0\0' $(printf %032d 0); declare -f __mark; sleep 0.2; (exit 7)")
    assert ran.exit_code == 7


async def test_terminal_modes_of_a_command_do_not_persist(sandbox: Sandbox) -> None:
    await shell(sandbox, "stty raw echo opost onlcr < /dev/tty; exec 9>&1; PS1='prompt> '")
    assert await printed(sandbox, "echo plain") == "plain\n"


async def test_a_permanent_redirection_ends_with_its_command(
    sandbox: Sandbox,
) -> None:
    await shell(sandbox, "exec >log 2>&1; echo kept; ls /nowhere")
    assert (await printed(sandbox, "cat log; echo loud >&2")).splitlines() == [
        "kept",
        "ls: cannot access '/nowhere': No such file or directory",
        "loud",
    ]
    await shell(sandbox, "exec >&- 2>&-")
    assert (await shell(sandbox, "echo open; (exit 3)")).output == "open\n"
    assert (await shell(sandbox, "exec 7>seven; echo more >&7")).exit_code == 0
    assert await printed(sandbox, "echo still >&7; cat seven") == "more\nstill\n"


async def test_binary_file_names_survive_the_shell(sandbox: Sandbox) -> None:
    assert (
        await printed(sandbox, r"touch $'b\xff\nd' && ls | od -c | head -1")
        == "0000000   b 377  \\n   d  \\n\n"
    )
    result = await sandbox.act(ViewFile(path="."))
    assert result == TextResult(text="./\n  b\ufffd\ufffdd")


async def test_a_command_with_nul_is_refused(sandbox: Sandbox) -> None:
    assert (await failed(sandbox, RunShell(command="echo \0"))).reason == "malformed"


# --- the editor -------------------------------------------------------------------------------------------------


async def test_an_edit_returns_its_diff_and_can_be_undone(sandbox: Sandbox) -> None:
    made = await sandbox.act(CreateFile(path="pkg/calc.py", content="def add(a, b):\n    return a - b\n"))
    assert isinstance(made, EditResult) and made.diff.startswith(
        "--- a/pkg/calc.py\n+++ b/pkg/calc.py\n@@ -0,0 +1,2 @@\n"
    )
    corrected = await sandbox.act(ReplaceText(path="pkg/calc.py", old="a - b", new="a + b"))
    assert corrected == EditResult(
        path="pkg/calc.py",
        diff="--- a/pkg/calc.py\n+++ b/pkg/calc.py\n@@ -1,2 +1,2 @@\n"
        " def add(a, b):\n-    return a - b\n+    return a + b\n",
        place="line 2 of 2",
    )
    await sandbox.act(InsertText(path="pkg/calc.py", line=0, text='"""Sums."""'))
    assert await printed(sandbox, "cat pkg/calc.py") == '"""Sums."""\ndef add(a, b):\n    return a + b\n'
    for _ in range(2):
        assert isinstance(await sandbox.act(UndoEdit(path="pkg/calc.py")), EditResult)
    assert await printed(sandbox, "cat pkg/calc.py") == "def add(a, b):\n    return a - b\n"


async def test_a_syntax_error_comes_with_its_line(sandbox: Sandbox) -> None:
    result = await sandbox.act(CreateFile(path="bad.py", content="x = 1\ndef f(:\n    pass\n"))
    assert isinstance(result, EditResult) and result.warning == "invalid syntax, line 2: def f(:"


async def test_text_that_is_absent_or_ambiguous_changes_nothing(sandbox: Sandbox) -> None:
    await sandbox.act(CreateFile(path="f.txt", content="one two\nthree\none two\n"))
    twice = await failed(sandbox, ReplaceText(path="f.txt", old="one two", new="x"))
    assert twice.reason == "ambiguous" and "at lines 1, 3" in twice.message
    near = await failed(sandbox, ReplaceText(path="f.txt", old="thre e", new="x"))
    assert near.reason == "not_found" and "2\tthree" in near.message
    assert await printed(sandbox, "cat f.txt") == "one two\nthree\none two\n"


async def test_a_view_names_the_next_range(sandbox: Sandbox) -> None:
    await shell(sandbox, "seq 1000 > n.txt")
    first = await sandbox.act(ViewFile(path="n.txt"))
    assert isinstance(first, TextResult)
    assert first.text.startswith("1\n2\n") and first.text.endswith(
        "[lines 1-600 of 1000; the next are 601-1000]"
    )
    nearly_all = await sandbox.act(ViewFile(path="n.txt", start=700, end=990))
    assert isinstance(nearly_all, TextResult)
    assert nearly_all.text.endswith("[lines 700-1000 of 1000: the end of the file]")
    last = await sandbox.act(ViewFile(path="n.txt", start=999, end=2000, numbers=True))
    assert last == TextResult(text="999\t999\n1000\t1000\n[lines 999-1000 of 1000: the end of the file]")


@pytest.mark.parametrize("path", ["/etc/passwd", "../..", "link", "link/passwd"])
async def test_paths_outside_the_work_tree_are_refused(sandbox: Sandbox, path: str) -> None:
    await shell(sandbox, "ln -s /etc link")
    for action in (ViewFile(path=path), CreateFile(path=f"{path}/x", content=""), ReadBytes(path=path)):
        assert (await failed(sandbox, action)).reason == "refused"


async def test_scratch_files_may_be_edited(sandbox: Sandbox) -> None:
    result = await sandbox.act(CreateFile(path=f"{sandbox.scratch}/note.txt", content="hi\n"))
    assert isinstance(result, EditResult)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ("printf 'a\\0b' > f", "binary"),
        ("head -c 6000000 /dev/zero | tr '\\0' a > f", "too_large"),
        ("true", "not_found"),
        ("mkfifo f", "refused"),
    ],
)
async def test_files_that_cannot_be_shown_are_refused_with_a_hint(
    sandbox: Sandbox, made: str, reason: str
) -> None:
    await shell(sandbox, made)
    result = await failed(sandbox, ViewFile(path="f"))
    assert result.reason == reason
    assert any(tool in result.message for tool in ("run_shell", "find"))


async def test_creating_an_existing_file_is_refused(sandbox: Sandbox) -> None:
    await shell(sandbox, "echo mine > f")
    assert (await failed(sandbox, CreateFile(path="f", content="yours"))).reason == "exists"
    assert await printed(sandbox, "cat f") == "mine\n"


async def test_line_ends_bom_foreign_bytes_and_mode_survive_an_edit(sandbox: Sandbox) -> None:
    before = b"\xef\xbb\xbf# caf\xe9\r\nx = 1\r\n"
    await sandbox.act(WriteBytes(path="old.py", content=before))
    await shell(sandbox, "chmod 755 old.py")
    assert isinstance(
        await sandbox.act(ReplaceText(path="old.py", old="x = 1\n", new="x = 2\ny = 3\n")), EditResult
    )
    after = await sandbox.act(ReadBytes(path="old.py"))
    assert after == FileContent(content=b"\xef\xbb\xbf# caf\xe9\r\nx = 2\r\ny = 3\r\n", size=25)
    assert await printed(sandbox, "stat -c %a old.py") == "755\n"


# --- actions of the program
# --------------------------------------------------------------------------------------


async def test_a_program_runs_without_a_shell_and_keeps_its_streams_apart(sandbox: Sandbox) -> None:
    result = await sandbox.act(
        Execute(argv=("sh", "-c", 'printf "%s|$V" "$0"; printf "\\377" >&2; exit 5', "a b;c"), env={"V": "v"})
    )
    assert isinstance(result, ExecuteResult)
    assert (result.exit_code, result.stdout, result.stderr) == (5, b"a b;c|v", b"\xff")


async def test_a_program_past_its_timeout_is_killed_with_its_group(sandbox: Sandbox) -> None:
    result = await sandbox.act(Execute(argv=("sh", "-c", "echo $$; sleep 69 & sleep 70"), timeout=1))
    assert isinstance(result, ExecuteResult) and result.exit_code is None
    left = await printed(
        sandbox, f"cat /proc/[0-9]*/stat 2>&- | awk '$3 != \"Z\" && $6 == {int(result.stdout)}' | wc -l"
    )
    assert left == "0\n"


async def test_a_program_that_leaves_a_child_behind_delays_nothing(sandbox: Sandbox) -> None:
    # If it waited for the child or for the timeout, the test would reach its own time limit.
    result = await sandbox.act(Execute(argv=("sh", "-c", "sleep 710 & echo done"), timeout=700))
    assert isinstance(result, ExecuteResult)
    assert (result.exit_code, result.stdout) == (0, b"done\n")


async def test_a_program_that_does_not_exist_is_an_observation(sandbox: Sandbox) -> None:
    assert (await failed(sandbox, Execute(argv=("no-such-program",)))).reason == "not_found"
    assert (await failed(sandbox, Execute(argv=("true",), cwd="nowhere"))).reason == "not_found"


async def test_streams_of_a_program_are_capped(sandbox: Sandbox) -> None:
    result = await sandbox.act(Execute(argv=("head", "-c", "20000000", "/dev/zero")))
    assert isinstance(result, ExecuteResult) and len(result.stdout) < (4 << 20) + 100
    assert b"[... 15805696 bytes not kept ...]" in result.stdout


async def test_bytes_are_written_and_read_in_parts(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 8192  # 2 MiB
    assert await sandbox.act(WriteBytes(path="d/e/f.bin", content=data)) == WriteResult(size=len(data))
    assert await sandbox.act(WriteBytes(path="d/e/f.bin", content=b"end", append=True)) == WriteResult(
        size=len(data) + 3
    )
    part = await sandbox.act(ReadBytes(path="d/e/f.bin", offset=len(data) - 1, limit=10))
    assert part == FileContent(content=b"\xffend", size=len(data) + 3)


async def test_concurrent_actions_run_one_after_the_other(sandbox: Sandbox) -> None:
    await asyncio.gather(
        *(shell(sandbox, f"echo begin {n} >> log; sleep 0.1; echo end {n} >> log") for n in range(3))
    )
    assert await printed(sandbox, "cat log") == "".join(f"begin {n}\nend {n}\n" for n in range(3))
