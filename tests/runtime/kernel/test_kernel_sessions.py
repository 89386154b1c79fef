"""Sessions that start, end, and are replaced."""

import asyncio
import sysconfig
from pathlib import Path

import pytest

from patchwright.runtime import processes, skills
from patchwright.runtime.features import SandboxFeatures
from patchwright.runtime.observations import ActionFailure
from tests.runtime.kernel.test_kernel_manager import kernel_in, once, ran
from tests.runtime.waiting import gone, until

pytestmark = pytest.mark.slow


async def test_a_running_cell_can_be_interrupted(tmp_path: Path) -> None:
    async with kernel_in(tmp_path) as kernel:
        assert await kernel.interrupt() is False
        await ran(kernel, "import time; kept = 8")
        running = asyncio.create_task(ran(kernel, "time.sleep(60)"))
        await asyncio.sleep(0.2)
        assert await kernel.interrupt() is True
        assert "KeyboardInterrupt" in (await running).output
        assert (await ran(kernel, "kept")).output == "8\n"


async def test_a_cell_that_is_no_longer_awaited_ends_with_its_session(tmp_path: Path) -> None:
    async with kernel_in(tmp_path) as kernel:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(kernel.run("import time; time.sleep(60)", 60), timeout=3)
        await gone(f"HOME={tmp_path}")
        assert (await ran(kernel, "1")).output == "1\n"


async def test_too_many_processes_left_by_a_cell_are_killed_and_the_session_stays(tmp_path: Path) -> None:
    others = [await asyncio.create_subprocess_exec("sleep", "60") for _ in range(80)]
    async with kernel_in(tmp_path) as kernel:
        await ran(
            kernel,
            "import subprocess; kept = 9\ndef start(n): return [subprocess.Popen(['sleep', '60']) for _ in range(n)]",
        )
        few = await ran(kernel, "few = start(3); [each.poll() for each in few]")
        assert (few.output, few.note) == ("[None, None, None]\n", None)
        for other in others:  # other processes of this machine do not count
            other.kill()
            await other.wait()
        many = await ran(kernel, "many = start(70); print('left')")
        assert many.output == "left\n" and many.ok
        assert many.note == "cells had left too many processes running (73): all of them were killed"
        assert (await ran(kernel, "kept, {each.wait() for each in few + many}")).output == "(9, {-9})\n"


async def test_a_session_that_does_not_respond_is_replaced(tmp_path: Path) -> None:
    async with kernel_in(tmp_path) as kernel:
        left = "import subprocess, time; subprocess.Popen(['sleep', '60'], start_new_session=True)"
        await ran(kernel, left)
        deaf = "while True:\n    try: time.sleep(60)\n    except BaseException: pass"
        result = await ran(kernel, deaf, timeout=1)
        assert result.note is not None and not result.ok
        assert "the Python session did not respond and was killed; all variables" in result.note
        await gone(f"HOME={tmp_path}")
        assert (await ran(kernel, "1")).output == "1\n"


@pytest.mark.parametrize(
    ("death", "expected"),
    [("os._exit(0)", "ended with status 0"), ("os.kill(os.getpid(), 9)", "was ended by signal SIGKILL")],
)
async def test_a_session_that_dies_is_reported_and_replaced(
    tmp_path: Path, death: str, expected: str
) -> None:
    async with kernel_in(tmp_path) as kernel:
        result = await ran(kernel, f"import os; print('going'); {death}")
        assert (result.output, result.ok) == ("going\n", False) and expected in (result.note or "")
        pid = (await ran(kernel, once(tmp_path / "told", death) + "\nos.getpid()")).output.strip()
        (tmp_path / "told").touch()
        await until(lambda: not Path("/proc", pid).exists())
        result = await ran(kernel, "1")
        assert result.output == "1\n"
        assert (result.note or "").startswith(
            f"before this cell the Python session {expected}; all variables"
        )


async def test_a_session_starts_with_its_first_cell_and_leaves_nothing(tmp_path: Path) -> None:
    mine = f"HOME={tmp_path}"
    async with kernel_in(tmp_path) as kernel:
        assert processes.find_by_environment(mine) == []
        await ran(kernel, "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)")
        assert processes.find_by_environment(mine) != []
    await gone(mine)
    assert list((tmp_path / "tmp").iterdir()) == []


async def test_the_repositorys_own_modules_are_importable_and_cannot_break_the_session(
    tmp_path: Path,
) -> None:
    (tmp_path / "tree").mkdir()
    for name in ("queue", "select", "tornado", "runtime", "text"):
        (tmp_path / "tree" / f"{name}.py").write_text("raise SystemExit('shadowed')")
    (tmp_path / "tree" / "calc.py").write_text("def add(a, b): return a + b")
    async with kernel_in(tmp_path) as kernel:
        result = await ran(kernel, "import os, sys; os.chdir('/'); import calc; calc.add(1, 2)")
        assert (result.output, result.note) == ("3\n", None)


async def test_a_missing_feature_is_reported(tmp_path: Path) -> None:
    async with kernel_in(tmp_path, plugins=SandboxFeatures(tmp_path / "opt")) as kernel:
        result = await kernel.run("1", 5)
        assert (
            isinstance(result, ActionFailure) and result.reason == "missing" and "`kernel`" in result.message
        )


async def test_a_skill_without_its_feature_says_so(tmp_path: Path) -> None:
    (tmp_path / "opt" / "kernel").mkdir(parents=True)
    (tmp_path / "opt" / "kernel" / "lib").symlink_to(sysconfig.get_path("platlib"))
    async with kernel_in(tmp_path, plugins=SandboxFeatures(tmp_path / "opt")) as kernel:
        (tmp_path / "tree" / "paper.pdf").write_bytes(b"%PDF-1.4")
        result = await ran(kernel, "parse_pdf('paper.pdf')")
        assert "this sandbox has no `documents`: the operator's setting `sandbox_features`" in result.output


@pytest.mark.parametrize("has_documents", [True, False])
async def test_the_features_of_a_sandbox_decide_which_skills_can_be_imported(
    tmp_path: Path, *, has_documents: bool
) -> None:
    (tmp_path / "opt" / "kernel").mkdir(parents=True)
    (tmp_path / "opt" / "kernel" / "lib").symlink_to(sysconfig.get_path("platlib"))
    features = SandboxFeatures() if has_documents else SandboxFeatures(tmp_path / "opt")
    shown = [name for name in skills.__all__ if has_documents or name not in skills.NEED_DOCUMENTS]
    async with kernel_in(tmp_path, plugins=features) as kernel:
        for name in skills.__all__:
            imported = await ran(kernel, f"from agentskills import {name}")
            assert imported.ok == (name in shown), name
            assert ("ImportError: this sandbox has no `documents`" in imported.output) == (name not in shown)
        listed = await ran(kernel, "import agentskills; print(agentskills.__all__)")
        assert listed.output == f"{shown}\n"
        unknown = await ran(kernel, "agentskills.fly")
        assert "AttributeError: module 'agentskills' has no attribute 'fly'" in unknown.output
