"""`patchwright probe` at a terminal."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from demo.model import Endpoint, Turn, WrittenCall
from resolver.llm.probe import NUMBER

FIT = Turn("", calls=(WrittenCall(name="report_number", arguments={"number": NUMBER}),))
UNFIT = Turn("I would rather talk.")


async def patchwright(directory: Path, turn: Turn, *arguments: str) -> tuple[int, str]:
    """The exit code, and what is on standard output."""
    async with Endpoint([turn]) as endpoint:
        process = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "bot.cli", "probe", "--base-url", endpoint.base_url, *arguments],
            cwd=directory,
            env={"PATH": os.environ["PATH"], "HOME": str(directory), "PYTHONPATH": str(Path.cwd()),
                 "PATCHWRIGHT_MODEL_API_KEY": "key"},
            stdout=subprocess.PIPE,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), timeout=60)
        return process.returncode or 0, out.decode()


async def test_a_fit_model_is_told_in_a_line(tmp_path: Path) -> None:
    code, said = await patchwright(tmp_path, FIT, "--model", "openai/gpt-4o")
    assert code == 0
    assert said.startswith(
        "openai/gpt-4o: fit; it called the tool as it was asked; it sees pictures; this cost $0.0"
    )


async def test_one_that_is_not_is_told_with_the_reason_and_an_exit_code(tmp_path: Path) -> None:
    code, said = await patchwright(tmp_path, UNFIT, "--model", "openai/recorded")
    assert code == 3
    assert said.startswith(
        "openai/recorded: NOT FIT; it answered without calling the tool: I would rather talk; "
    )
    code, said = await patchwright(tmp_path, UNFIT, "--model", "openai/recorded", "--json")
    assert code == 3
    (found,) = json.loads(said)["models"]
    assert (found["tools"], found["why"]) == (
        "none",
        "it answered without calling the tool: I would rather talk.",
    )
