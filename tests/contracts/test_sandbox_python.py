"""Python cells in every sandbox with the feature `kernel`."""

import pytest

from patchwright.runtime.actions import HostReply, Interrupt, RunPython
from patchwright.runtime.observations import ActionFailure, CellResult, HostRequest
from patchwright.runtime.sandbox import Sandbox
from tests.contracts.sandbox_actions import printed, shell

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def ran(sandbox: Sandbox, code: str, timeout: int = 30) -> CellResult:
    result = await sandbox.act(RunPython(code=code, timeout=timeout))
    assert isinstance(result, CellResult), result
    return result


async def test_a_cell_shows_its_output_and_value_and_keeps_its_variables(
    sandbox: Sandbox,
) -> None:
    assert (await ran(sandbox, "x = 1\ndef double(n):\n    return 2 * n")).output == ""
    result = await ran(sandbox, "print(x)\ndouble(21)")
    assert (result.output, result.ok, result.note) == ("1\n42\n", True, None)
    failed = await ran(sandbox, "def f():\n    return x / 0\nf()")
    assert not failed.ok
    assert (
        "in f\n    return x / 0" in failed.output and "ZeroDivisionError: division by zero" in failed.output
    )
    await shell(sandbox, "printf 'a = 1\\nb = 2\\n' > two.py")
    assert "2|b = 2" in (await ran(sandbox, "open_file('two.py')")).output
    assert (await ran(sandbox, "import os; os.getcwd()")).output == f"'{sandbox.root}'\n"
    pictured = await ran(
        sandbox, f"from IPython.display import Image\nimport base64\nImage(base64.b64decode('{PNG}'))"
    )
    assert pictured.output == "[image 1: image/png, 70 bytes]\n"
    assert [picture.media_type for picture in pictured.images] == ["image/png"]


@pytest.mark.slow
async def test_a_cell_past_its_timeout_is_interrupted_or_its_session_replaced(
    sandbox: Sandbox,
) -> None:
    await ran(sandbox, "x = 1; import time, os, subprocess")
    code = "print('begun'); subprocess.run('sleep 60 & echo $! > pid; wait', shell=True)"
    late = await ran(sandbox, code, timeout=1)
    assert late.output.startswith("begun\n") and "KeyboardInterrupt" in late.output and not late.ok
    assert late.note == "the cell was interrupted at its timeout of 1 s; the session keeps its variables"
    assert await printed(sandbox, "grep -s '^State:.[RSD]' /proc/$(cat pid)/status | wc -l") == "0\n"
    assert (await ran(sandbox, "x")).output == "1\n"
    died = await ran(sandbox, "print('going'); os._exit(3)")
    assert (died.output, died.ok) == ("going\n", False)
    assert died.note is not None
    assert died.note.startswith(
        "the Python session ended with status 3; all variables, functions and imports"
    )
    assert "NameError: name 'x' is not defined" in (await ran(sandbox, "x")).output


async def test_a_cell_that_asks_the_host_continues_with_the_reply(sandbox: Sandbox) -> None:
    code = "from agentskills import host\nprint('before')\n"
    code += f"print(host.ask_model('image', ['{sandbox.root}/a.png'], 'read'))"
    wanted = await sandbox.act(RunPython(code=code))
    assert wanted == HostRequest(modality="image", files=(f"{sandbox.root}/a.png",), task="read")
    answered = await sandbox.act(HostReply(text="a red dot"))
    assert isinstance(answered, CellResult) and (answered.output, answered.ok) == (
        "before\na red dot\n",
        True,
    )
    await sandbox.act(RunPython(code=code))
    refused = await sandbox.act(HostReply(text="no model sees here", failed=True))
    assert isinstance(refused, CellResult) and "RuntimeError: no model sees here" in refused.output
    nobody = await sandbox.act(HostReply(text="late"))
    assert isinstance(nobody, ActionFailure) and nobody.reason == "refused"


async def test_the_cell_of_a_dead_host_is_interrupted_and_the_session_stays(sandbox: Sandbox) -> None:
    await ran(sandbox, "x = 7")
    await sandbox.act(RunPython(code="from agentskills import host; host.ask_model('audio', ['/a.wav'], '')"))
    await sandbox.act(Interrupt())
    assert (await ran(sandbox, "x")).output == "7\n"


async def test_nothing_is_left_in_the_work_tree_or_at_home(sandbox: Sandbox) -> None:
    await shell(sandbox, "echo 'x = 1' > repo.py")
    before = await printed(sandbox, "ls -A . ~")
    assert (await ran(sandbox, "import repo; repo.x")).output == "1\n"
    assert await printed(sandbox, "ls -A . ~") == before
