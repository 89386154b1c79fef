"""What every sandbox with the `kernel` plugin does with cells of Python."""

from runtime.actions import Interrupt, Provide, RunPython
from runtime.observations import Failed, RanPython, Wanted
from runtime.sandbox import Sandbox
from tests.contracts.acts import printed, shell

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def ran(sandbox: Sandbox, code: str, timeout: int = 30) -> RanPython:
    seen = await sandbox.act(RunPython(code=code, timeout=timeout))
    assert isinstance(seen, RanPython), seen
    return seen


async def test_a_cell_shows_what_it_prints_and_its_value_and_the_next_one_knows_its_names(
    sandbox: Sandbox,
) -> None:
    assert (await ran(sandbox, "x = 1\ndef double(n):\n    return 2 * n")).output == ""
    seen = await ran(sandbox, "print(x)\ndouble(21)")
    assert (seen.output, seen.ok, seen.note) == ("1\n42\n", True, None)
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
    assert pictured.output == "[picture 1: image/png, 70 bytes]\n"
    assert [picture.media for picture in pictured.pictures] == ["image/png"]


async def test_a_cell_that_outlives_its_timeout_is_interrupted_or_its_session_replaced(
    sandbox: Sandbox,
) -> None:
    await ran(sandbox, "x = 1; import time, os, subprocess")
    begun = "print('begun'); subprocess.run('sleep 60 & echo $! > pid; wait', shell=True)"
    late = await ran(sandbox, begun, timeout=1)
    assert late.output.startswith("begun\n") and "KeyboardInterrupt" in late.output and not late.ok
    assert late.note == "interrupted at its timeout of 1 s, the session keeps its variables"
    assert await printed(sandbox, "grep -s '^State:.[RSD]' /proc/$(cat pid)/status | wc -l") == "0\n"
    assert (await ran(sandbox, "x")).output == "1\n"
    died = await ran(sandbox, "print('going'); os._exit(3)")
    assert (died.output, died.ok) == ("going\n", False)
    assert died.note is not None
    assert died.note.startswith(
        "the Python session ended with status 3: its variables, functions and imports"
    )
    assert "NameError: name 'x' is not defined" in (await ran(sandbox, "x")).output


async def test_a_cell_that_asks_the_host_goes_on_with_the_answer(sandbox: Sandbox) -> None:
    code = f"from agentskills import host\nprint('before')\nprint(host.ask('image', ['{sandbox.root}/a.png'], 'read'))"
    wanted = await sandbox.act(RunPython(code=code))
    assert wanted == Wanted(sense="image", files=(f"{sandbox.root}/a.png",), task="read")
    answered = await sandbox.act(Provide(text="a red dot"))
    assert isinstance(answered, RanPython) and (answered.output, answered.ok) == ("before\na red dot\n", True)
    await sandbox.act(RunPython(code=code))
    refused = await sandbox.act(Provide(text="no model sees here", failed=True))
    assert isinstance(refused, RanPython) and "RuntimeError: no model sees here" in refused.output
    nobody = await sandbox.act(Provide(text="late"))
    assert isinstance(nobody, Failed) and nobody.reason == "refused"


async def test_the_cell_of_a_host_that_is_gone_is_ended_and_the_session_stays(sandbox: Sandbox) -> None:
    await ran(sandbox, "x = 7")
    await sandbox.act(RunPython(code="from agentskills import host; host.ask('audio', ['/a.wav'], '')"))
    await sandbox.act(Interrupt())
    assert (await ran(sandbox, "x")).output == "7\n"


async def test_nothing_is_left_in_the_work_tree_or_at_home(sandbox: Sandbox) -> None:
    await shell(sandbox, "echo 'x = 1' > repo.py")
    before = await printed(sandbox, "ls -A . ~")
    assert (await ran(sandbox, "import repo; repo.x")).output == "1\n"
    assert await printed(sandbox, "ls -A . ~") == before
