"""Git processes on the host."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from patchwright.resolver.git.git_process import run_git


@pytest.mark.parametrize("steps", range(8))
async def test_a_git_canceled_at_its_start_is_not_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nsleep 60 & wait\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    task = asyncio.create_task(run_git("version"))
    for _ in range(steps):  # Turns of the event loop.
        await asyncio.sleep(0)
    time.sleep(0.1)  # The process continues while the event loop is blocked.
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=20)
    assert done and task.cancelled()
