"""The Python session, with misbehaving cells."""

import asyncio
import os
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.kernel.kernel_manager import KernelManager
from patchwright.runtime.observations import CellResult, HostRequest
from tests.runtime.waiting import until

shared = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def kernel_in(
    place: Path, plugins: SandboxFeatures | None = None, **env: str
) -> AsyncIterator[KernelManager]:
    """Start a session in `place/tree` with the Python of these tests as `python3`."""
    programs = place / "bin"
    for directory in (place / "tree", place / "tmp", programs):
        directory.mkdir(parents=True, exist_ok=True)
    (programs / "python3").symlink_to(sys.executable)
    env = {"PATH": f"{programs}:{os.defpath}", "HOME": str(place), "LANG": "C.UTF-8", **env}
    kernel = KernelManager(place / "tree", place / "tmp", env, plugins or SandboxFeatures())
    try:
        yield kernel
    finally:
        await kernel.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kernel(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KernelManager]:
    """One session for the tests that do not end it."""
    async with kernel_in(tmp_path_factory.mktemp("kernel")) as kernel:
        yield kernel


async def ran(kernel: KernelManager, code: str, timeout: float = 30) -> CellResult:
    result = await kernel.run(code, timeout)
    assert isinstance(result, CellResult), result
    return result


def once(file: Path, then: str) -> str:
    """Return a cell that starts a thread, which runs this code once the file exists."""
    wait = f"import os, threading, time\ndef wait():\n    while not os.path.exists({str(file)!r}): time.sleep(0.01)\n"
    return f"{wait}    {then}\nthreading.Thread(target=wait).start()"


IN_ORDER = [
    ("import os; print('a', end=''); os.system('echo b; echo c >&2'); print('d')", "ab\nc\nd\n"),
    ("!echo from the shell", "from the shell\n"),
    ("!(exit 3)", "[exit code 3]\n"),
    ("%%bash\necho from bash", "from bash\n"),
    ("print = None", ""),
    ("del print; print('back')", "back\n"),
    ("import sys; sys.stdout = None; sys.stderr.close()", ""),
    ("'after'", "'after'\n"),
    ("os.close(1); os.close(2)", ""),
    ("print('again'); os.system('echo child');", "again\nchild\n"),
    ("print('\\ud800', '\\x1b[31mred\\x1b[0m')", "\\ud800 red\n"),
    ("for n in range(3): print(n, end='\\r')", "2"),
    ("import asyncio; await asyncio.sleep(0); 3", "3\n"),
    ("from IPython.display import HTML; HTML('<b>bold</b>')", "<b>bold</b>\n"),
    ("{'a': [1, None]}", "{'a': [1, None]}\n"),
    ("exit()", "[the cell exited with SystemExit(None); the session continues]\n"),
    ("if pid := os.fork(): os.waitpid(pid, 0)\nprint('parent' if pid else 'child')", "child\nparent\n"),
]


@shared
async def test_a_cell_prints_in_order_whatever_the_previous_one_did(kernel: KernelManager) -> None:
    result = [(code, await ran(kernel, code)) for code, _ in IN_ORDER]
    assert [(code, one.output, one.ok) for code, one in result] == [(*pair, True) for pair in IN_ORDER]


@shared
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("input('name? ')", "EOFError: there is no standard input: put the value into the code"),
        ("breakpoint()", "RuntimeError: there is no standard input"),
        ("import pdb; pdb.set_trace()", "RuntimeError: there is no standard input"),
        ("import sys; sys.exit(3)", "SystemExit(3); the session continues"),
        ("%nosuch", "Line magic function `%nosuch` not found"),
        ("1 +", "SyntaxError: invalid syntax"),
        ("def r(): r()\nr()", "more times]\n\nRecursionError: maximum recursion depth exceeded"),
        ("class B:\n    def __repr__(self): raise ValueError('no')\nB()", "ValueError: no"),
    ],
)
async def test_a_failing_cell_shows_its_traceback(kernel: KernelManager, code: str, expected: str) -> None:
    result = await ran(kernel, code)
    assert expected in result.output and not result.ok and len(result.output) < 2_000


@shared
async def test_a_flood_of_output_costs_no_memory_and_is_saved_to_a_file(kernel: KernelManager) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await ran(kernel, "for _ in range(50): print('x' * 10**7)", timeout=100)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB
    assert len(result.output) < 31_000 and result.ok
    assert result.note is not None and result.note.endswith(
        "contains the first and last parts of this output"
    )


@shared
async def test_every_skill_is_a_name_of_the_session_from_its_start(kernel: KernelManager) -> None:
    code = (
        "import agentskills\nlen(agentskills.__all__), [n for n in agentskills.__all__ if n not in globals()]"
    )
    assert (await ran(kernel, code)).output == "(16, [])\n"


@shared
async def test_output_between_cells_is_marked(kernel: KernelManager, tmp_path: Path) -> None:
    first_file, path = tmp_path / "told", tmp_path / "said"
    then = f"print('late'); open({str(path)!r}, 'w').close()"
    assert (await ran(kernel, once(first_file, then))).output == ""
    first_file.touch()
    await until(path.exists)
    result = await ran(kernel, "print('now')")
    assert result.output == "late\nnow\n"
    assert result.note == "the first line is output of processes that earlier cells have left running"


@shared
async def test_an_interrupt_stops_code_that_sleeps_awaits_or_computes(kernel: KernelManager) -> None:
    await ran(kernel, "import asyncio, time; kept = 5")
    for code in ("time.sleep(600)", "await asyncio.sleep(600)", "await asyncio.sleep(0)\nwhile True: pass"):
        result = await ran(kernel, code, timeout=0.5)
        assert not result.ok
        assert (
            result.note == "the cell was interrupted at its timeout of 0.5 s; the session keeps its variables"
        )
    assert (await ran(kernel, "kept")).output == "5\n"


async def interrupted(kernel: KernelManager, code: str) -> None:
    """Run a cell and interrupt it when it reports that it is ready."""
    ready = Path((await ran(kernel, "import os; print(os.getcwd())")).output.strip()) / "ready"
    running = asyncio.create_task(kernel.run(code.replace("READY", f"open({str(ready)!r}, 'w').close()"), 60))
    await until(ready.exists)
    ready.unlink()
    assert await kernel.interrupt()
    result = await running
    assert isinstance(result, CellResult) and not result.ok


@shared
async def test_an_interrupt_spares_processes_of_earlier_cells(kernel: KernelManager) -> None:
    await ran(kernel, "import subprocess; old = subprocess.Popen(['sleep', '60'])")
    # Not awaited: an interrupt can consume the exit status of a wait that is just ending.
    await interrupted(kernel, "import time; new = subprocess.Popen(['sleep', '60']); READY; time.sleep(60)")
    assert (await ran(kernel, "old.poll(), new.wait()")).output == "(None, -9)\n"


@shared
async def test_processes_started_during_an_interrupt_are_killed(kernel: KernelManager) -> None:
    await ran(kernel, "import subprocess, time")
    late = "late = subprocess.Popen(['sleep', '60'])"
    await interrupted(kernel, f"READY\ntry: time.sleep(60)\nfinally:\n    time.sleep(0.2)\n    {late}\n")
    assert (await ran(kernel, "late.wait(timeout=10)")).output == "-9\n"


@shared
@pytest.mark.parametrize("code", ["kept = 5", "await asyncio.sleep(0); kept = 5"])
@pytest.mark.parametrize("moment", ["input_transformers_post", "ast_transformers"])
async def test_an_interrupt_outside_the_cells_code_ends_only_that_cell(
    kernel: KernelManager, code: str, moment: str
) -> None:
    hit = f"""
import ast, asyncio, os, signal
kept = 4
class Hit(ast.NodeTransformer):
    def __call__(self, read):
        get_ipython().{moment}.remove(self)
        os.kill(os.getpid(), signal.SIGINT)
        return read
    visit = __call__
get_ipython().{moment}.append(Hit())
"""
    await ran(kernel, hit)
    result = await ran(kernel, code)
    assert result.output.endswith(("KeyboardInterrupt\n", "CancelledError\n"))
    assert (result.ok, result.note) == (False, None)
    assert (await ran(kernel, "kept")).output == "4\n"


@shared
async def test_the_largest_images_are_shown_and_the_others_named(kernel: KernelManager) -> None:
    code = (
        "from IPython.display import display\n"
        "class Shot:\n"
        "    def __init__(self, size): self.size = size\n"
        "    def _repr_png_(self): return b'\\x89PNG' + b'x' * self.size\n"
        "for size in (10, 3_000_000, 30, 5_000_000, 3_500_000, 20, 3_200_000): display(Shot(size))\n"
    )
    result = await ran(kernel, code)
    assert "[image 4: image/png, 5,000,004 bytes]\n" in result.output
    assert sorted(len(picture.data) for picture in result.images) == [24, 34, 3_200_004, 3_500_004]
    assert result.note is not None and result.note.startswith(
        "the cell showed 7 images, but only these are returned: 3, 5, 6, 7 ("
    )


@shared
async def test_figures_that_a_cell_leaves_open_are_shown(kernel: KernelManager) -> None:
    # A minimal `matplotlib.pyplot`; the real one is no dependency of ours.
    library = """
import sys, types
pyplot = types.ModuleType("matplotlib.pyplot")
opened = [1, 2]
class Figure:
    def savefig(self, file, format, bbox_inches): file.write(b"\\x89PNG")
pyplot.get_fignums = lambda: list(opened)
pyplot.figure = lambda number: Figure()
pyplot.close = lambda which: opened.clear()
sys.modules["matplotlib.pyplot"] = pyplot
"""
    result = await ran(kernel, library)
    assert result.output == "[image 1: image/png, 4 bytes]\n[image 2: image/png, 4 bytes]\n"
    assert [picture.data for picture in result.images] == [b"\x89PNG"] * 2
    assert (await ran(kernel, "del sys.modules['matplotlib.pyplot']")).images == ()


@shared
async def test_an_invalid_host_request_is_rejected_with_the_reason(kernel: KernelManager) -> None:
    asking = (
        "from agentskills import host\ntry: host.ask_model({0})\nexcept RuntimeError as error: print(error)"
    )
    for arguments, notice in (
        ("'smell', ['/a'], ''", "modality: Input should be 'image', 'audio' or 'video'"),
        ("'image', ['/a'] * 65, ''", "files: Tuple should have at most 64 items"),
        ("'image', ['\\ud800'], ''", "Invalid JSON"),
    ):
        assert notice in (await ran(kernel, asking.format(arguments))).output
    theirs = "type(get_ipython().kernel).__mro__[1].raw_input(get_ipython().kernel, 'password: ')"
    assert "there is no standard input" in (await ran(kernel, theirs)).output


@shared
async def test_a_cell_without_a_reply_is_interrupted_by_the_next_one(kernel: KernelManager) -> None:
    result = await kernel.run("from agentskills import host; host.ask_model('image', ['/a'], '')", 30)
    assert isinstance(result, HostRequest)
    output = await ran(kernel, "6")
    assert output.output == "6\n"
    assert output.note == "the previous cell was still waiting for a reply and was interrupted"


@shared
async def test_a_cell_may_send_several_requests(kernel: KernelManager) -> None:
    code = "from agentskills import host\nfor n in range(2): print(host.ask_model('image', [f'/{n}'], ''))"
    assert await kernel.run(code, 30) == HostRequest(modality="image", files=("/0",))
    assert await kernel.resume("zero", 30, failed=False) == HostRequest(modality="image", files=("/1",))
    result = await kernel.resume("one", 30, failed=False)
    assert isinstance(result, CellResult) and result.output == "zero\none\n"


@pytest.mark.slow
async def test_a_package_that_breaks_the_session_is_replaced_with_a_note(
    tmp_path: Path,
) -> None:
    (tmp_path / "site" / "tornado").mkdir(parents=True)
    (tmp_path / "site" / "tornado" / "__init__.py").write_text("raise AttributeError('too old')")
    async with kernel_in(tmp_path, PYTHONPATH=str(tmp_path / "site")) as kernel:
        result = await ran(kernel, "import tornado; 1")
        assert result.output == "1\n" and result.note is not None
        assert (
            "cannot start with the repository's packages (AttributeError: too old), so it uses its own IPython"
            in result.note
        )


@pytest.mark.slow
async def test_without_a_python_of_the_repository_ours_runs_the_session(tmp_path: Path) -> None:
    async with kernel_in(tmp_path, PATH="/nonexistent", PYTHONPATH="/elsewhere") as kernel:
        result = await ran(kernel, "import sys; '/elsewhere' in sys.path, sys.flags.isolated")
        assert result.output == "(False, 1)\n" and result.note is not None
        assert "cannot run this session (there is no python3 on the PATH)" in result.note
