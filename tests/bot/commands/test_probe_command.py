"""`patchwright probe` in a terminal."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from pydantic import SecretStr

from patchwright.bot.commands.probe_command import run_probe
from patchwright.demo.recorded_model import ModelFault, RecordedCall, RecordedModel, RecordedTurn
from patchwright.resolver.llm.probe import PROBE_NUMBER
from patchwright.resolver.settings.settings import Settings
from tests.preloaded_command import preloaded_command

FIT = RecordedTurn("", calls=(RecordedCall(name="report_number", arguments={"number": PROBE_NUMBER}),))
UNSUITABLE = RecordedTurn("I would rather talk.")


async def patchwright(directory: Path, turn: RecordedTurn, *arguments: str) -> tuple[int, str]:
    """Runs the command and returns its exit code and standard output."""
    async with RecordedModel([turn], answers_probes=False) as endpoint:
        process = await asyncio.create_subprocess_exec(
            *[*preloaded_command(), "probe", "--base-url", endpoint.base_url, *arguments],
            cwd=directory,
            env={"PATH": os.environ["PATH"], "HOME": str(directory), "PYTHONPATH": str(Path.cwd()),
                 "PATCHWRIGHT_MODEL_API_KEY": "key"},
            stdout=subprocess.PIPE,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(), timeout=60)
        return process.returncode or 0, out.decode()


@pytest.mark.slow
async def test_a_working_model_is_reported_in_one_line(tmp_path: Path) -> None:
    code, result = await patchwright(tmp_path, FIT, "--model", "openai/gpt-4o")
    assert code == 0
    assert result.startswith(
        "openai/gpt-4o: works; the model called the tool as instructed; the model supports images; this test cost $0.0"
    )


@pytest.mark.slow
async def test_an_unsuitable_model_is_reported_with_the_reason_and_an_exit_code(tmp_path: Path) -> None:
    code, result = await patchwright(tmp_path, UNSUITABLE, "--model", "openai/recorded")
    assert code == 3
    assert result.startswith(
        "openai/recorded: DOES NOT WORK; the model answered without calling the tool: I would rather talk. "
        "(neither native nor text tool calls work: choose another model); image support is unknown, so it gets no "
        "images (if it supports them, set PATCHWRIGHT_MULTIMODAL_MODEL=openai/recorded); "
    )
    code, result = await patchwright(tmp_path, UNSUITABLE, "--model", "openai/recorded", "--json")
    assert code == 3
    (found,) = json.loads(result)["models"]
    assert (found["tool_calling"], found["reason"]) == (
        "none",
        "the model answered without calling the tool: I would rather talk. "
        "(neither native nor text tool calls work: choose another model)",
    )


@pytest.mark.slow
async def test_a_failure_is_retried_only_for_seconds(tmp_path: Path) -> None:
    async with RecordedModel([FIT], answers_probes=False) as endpoint:
        endpoint.add_faults(*[ModelFault(status=500, body='{"error": {"message": "boom"}}')] * 20)
        settings = Settings(
            data=tmp_path, model="openai/recorded", model_base_url=endpoint.base_url,
            model_api_key=SecretStr("key"),
        )  # fmt: skip
        assert not await run_probe(settings, {}, as_json=True)
        assert len(endpoint.requests) < 5


@pytest.mark.slow
async def test_ctrl_c_prints_no_warning_of_a_library(tmp_path: Path) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    process = await asyncio.create_subprocess_exec(
        *[*preloaded_command(), "probe", "--model", "openai/x", "--base-url", url],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(Path.cwd()),
             "PATCHWRIGHT_MODEL_API_KEY": "key"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    async with server, asyncio.timeout(120):
        assert process.stderr is not None
        assert b"Asking openai/x" in await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, error = await process.communicate()
    assert error.decode() == "Stopping. This can take up to 20 seconds.\nStopped.\n"
    assert process.returncode == 130


async def test_an_endpoint_that_does_not_exist_is_reported_at_once(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *[*preloaded_command(), "probe", "--model", "openai/x", "--base-url", "http://127.0.0.1:9/v1"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(Path.cwd()),
             "PATCHWRIGHT_MODEL_API_KEY": "key"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    out, error = await asyncio.wait_for(process.communicate(), timeout=60)
    assert (process.returncode, out, error.decode()) == (
        2,
        b"",
        "patchwright: The model's endpoint 127.0.0.1:9 cannot be reached (connection refused). "
        "Check PATCHWRIGHT_MODEL_BASE_URL, and check that the endpoint is running.\n",
    )
