"""`patchwright doctor`: each check with its requirement met and broken."""

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from patchwright.bot.composition import sandbox_factory
from patchwright.bot.doctor import docker_checks, host_checks, model_checks, redis_checks
from patchwright.bot.doctor.runner import CheckResult, DoctorCheck, ok
from patchwright.bot.redis.embedded_redis import lock_data_directory, run_embedded_redis
from patchwright.bot.redis.heartbeats import Heartbeats
from patchwright.bot.setup import credential_store
from patchwright.demo.recorded_model import RecordedModel
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.docker import capacity
from patchwright.runtime.errors import EngineUnavailable
from tests.bot.commands.test_probe_command import FIT, UNSUITABLE
from tests.bot.doctor.doctor_server import SECRET, find_result, run_all, server_under_test, states
from tests.preloaded_command import preloaded_command

# --- the machine and Redis ----------------------------------------------------------------------------------


def test_a_read_only_data_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (good,) = host_checks.check_data_directory(tmp_path / "new" / "data")
    assert good.state == "ok"
    assert not (tmp_path / "new").exists()
    (bad,) = host_checks.check_data_directory(Path("/proc/1"))
    assert (bad.state, bad.fix) == ("failed", "Make /proc/1 writable for this user, or set PATCHWRIGHT_DATA.")


def test_saved_credentials_are_reported_as_they_are(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")
    assert host_checks.check_saved_credentials(settings) == []
    stored = credential_store.StoredSetup(model=credential_store.ModelConnection(model="openai/gpt-4o"))
    path, key = credential_store.store_path(settings.data), tmp_path / "data.key"
    credential_store.save(settings.data, stored)
    (good,) = host_checks.check_saved_credentials(settings)
    assert (good.state, good.detail) == ("ok", f"encrypted; the key is the file {key}")
    path.chmod(0o644)
    key.chmod(0o640)
    _, exposed = host_checks.check_saved_credentials(settings)
    assert exposed.state == "warning"
    assert "credentials.json has mode 0644" in exposed.detail
    assert f"{key} has mode 0640" in exposed.detail
    command, _, _ = exposed.fix.partition(";")
    subprocess.run(["sh", "-c", command], check=True)
    assert host_checks.check_saved_credentials(settings) == [good]
    key.unlink()
    (lost,) = host_checks.check_saved_credentials(settings)
    assert lost.state == "failed"
    assert "Its key was the file" in lost.detail


def test_low_disk_space_and_memory_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many_jobs = Settings(data=tmp_path, max_concurrent_jobs=64, memory_mb=1 << 20)
    assert host_checks.check_memory(many_jobs)[0].state == "warning"
    for name in ("MIN_FREE_DISK_MB", "MIN_FREE_MEMORY_MB"):
        monkeypatch.setattr(capacity, name, 1 << 40)
    settings = Settings(data=tmp_path)
    assert [check(settings)[0].state for check in (host_checks.check_disk, host_checks.check_memory)] == [
        "failed"
    ] * 2


async def test_a_missing_model_leads_to_the_setup_in_the_browser(tmp_path: Path) -> None:
    result = await find_result(model_checks.build_checks(Settings(data=tmp_path)), "model", "failed")
    assert result.fix.startswith("For a server, start patchwright serve and choose the model in the browser.")


async def test_an_unreachable_redis_is_reported(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, redis_url="redis://127.0.0.1:1/0")
    result = await find_result(redis_checks.build_checks(settings), "redis", "failed")
    assert (result.detail, result.fix) == (
        "Redis at redis://127.0.0.1:1/0 does not respond (connection refused)",
        "Start Redis, or correct REDIS_URL.",
    )


@pytest.mark.redis
async def test_the_embedded_redis_of_a_running_server_is_checked(short_tmp: Path) -> None:
    settings = Settings(data=short_tmp)
    assert (
        "will start an embedded Redis"
        in (await find_result(redis_checks.build_checks(settings), "redis", "ok")).detail
    )
    async with run_embedded_redis(short_tmp):
        results = await run_all(redis_checks.build_checks(settings))
    assert [(result.name, result.state) for result in results] == [
        ("redis", "ok"), ("redis persistence", "ok"), ("redis memory", "ok"), ("workers", "warning"),
    ]  # fmt: skip


async def test_a_server_that_waits_for_its_setup_is_not_called_stopped(tmp_path: Path) -> None:
    for settings in (Settings(data=tmp_path), Settings(data=tmp_path, poll=True)):
        with lock_data_directory(tmp_path):
            (result,) = await run_all(redis_checks.build_checks(settings))
        assert (result.name, result.state, result.detail, result.fix) == (
            "server",
            "warning",
            "running, but its setup in the browser is not complete",
            "Open the URL that patchwright serve printed, and complete the setup.",
        )
    assert await find_result(redis_checks.build_checks(settings), "server", "failed")


@pytest.mark.redis
async def test_a_configured_server_that_is_not_running_fails_the_check(short_tmp: Path) -> None:
    settings = Settings(data=short_tmp, app_id="1")
    result = await find_result(redis_checks.build_checks(settings), "server", "failed")
    assert (result.detail, result.fix) == (
        f"not running: no server uses the data directory {short_tmp}",
        "Start patchwright serve.",
    )
    async with run_embedded_redis(short_tmp):
        result = await find_result(redis_checks.build_checks(settings), "workers", "failed")
        assert result.detail == "no worker is running"
    async with running_worker(short_tmp):
        await asyncio.sleep(0.2)
        assert {"ok"} == states(await run_all(redis_checks.build_checks(settings)))
    with socket.socket(socket.AF_UNIX) as stale:
        (short_tmp / "redis/redis.sock").unlink(missing_ok=True)
        stale.bind(str(short_tmp / "redis/redis.sock"))
        assert await find_result(redis_checks.build_checks(settings), "redis", "failed")


async def test_a_stale_redis_socket_is_reported(
    short_tmp: Path,
) -> None:
    (short_tmp / "redis").mkdir()
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(short_tmp / "redis/redis.sock"))
    result = await find_result(redis_checks.build_checks(Settings(data=short_tmp)), "redis", "warning")
    assert result.fix.startswith("Start patchwright serve")


def test_missing_persistence_and_eviction_are_reported() -> None:
    assert redis_checks._check_persistence({"aof_enabled": 0}).state == "warning"
    assert (
        redis_checks._check_persistence({"aof_enabled": 1, "aof_last_write_status": "err"}).state == "failed"
    )
    assert redis_checks._check_memory({"maxmemory": 1, "maxmemory_policy": "allkeys-lru"}).state == "failed"
    assert redis_checks._check_version({"redis_version": "5.0.14"}).state == "failed"


# --- the engine ---------------------------------------------------------------------------------------------


async def test_an_unreachable_engine_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    result = await find_result(docker_checks.build_checks(Settings(data=tmp_path), {}), "engine", "failed")
    assert f"no Docker engine responds at unix://{tmp_path}/nothing.sock" in result.detail


async def test_every_part_connects_to_an_engine_behind_ssh(tmp_path: Path) -> None:
    environ, settings = {"DOCKER_HOST": "ssh://builder:secret@engine.test"}, Settings(data=tmp_path)
    result = await find_result(docker_checks.build_checks(settings, environ), "engine", "failed")
    sandboxes = sandbox_factory.build_docker_sandboxes(settings, environ, print)
    with pytest.raises(EngineUnavailable) as error:
        await sandboxes.prepare()
    problem = await sandbox_factory.find_engine_problem(environ)
    for message in (result.detail, str(error.value), problem):
        assert message and "write the engine's URL as ssh://user@host:22" in message


@pytest.mark.docker
async def test_the_engine_enforces_sandbox_limits(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, memory_mb=300, cpus=0.5)
    result = await find_result(docker_checks.build_checks(settings, {}), "sandbox limits", "ok")
    assert result.detail.startswith("enforced in a container: 300 MiB, 512 processes, 0.5 CPUs")
    absent = Settings(data=tmp_path, image="no-such-image:here")
    assert (
        "no-such-image:here is not pulled yet"
        in (await find_result(docker_checks.build_checks(absent, {}), "base image", "warning")).detail
    )


def test_the_disk_of_the_engine_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for minimum, state in ((0, "ok"), (1 << 40, "failed")):
        monkeypatch.setattr(capacity, "MIN_FREE_DISK_MB", minimum)
        (result,) = docker_checks._check_disk(tmp_path)
        assert (result.state, str(tmp_path) in result.detail) == (state, True)
    assert docker_checks._check_disk(tmp_path / "elsewhere") == []  # the engine runs in a VM


def test_an_old_engine_and_missing_limits_are_reported() -> None:
    assert docker_checks._check_version({"ServerVersion": "19.03.1"})[0].state == "failed"
    (limits,) = docker_checks._check_version({"ServerVersion": "28.0.1", "MemoryLimit": False})[1:]
    assert limits.detail == "the engine cannot limit memory"


# --- the report -----------------------------------------------------------------------------------------


async def test_checks_run_in_parallel_and_time_out() -> None:
    both = asyncio.Barrier(2)

    async def wait_for_other() -> list[CheckResult]:
        await both.wait()
        return [ok("meeting", "met")]

    async def hang() -> list[CheckResult]:
        await asyncio.Event().wait()
        return []

    checks = [
        DoctorCheck("hanging", hang, "Check it.", timeout_seconds=0.05),
        DoctorCheck("meeting", wait_for_other, ""),
        DoctorCheck("meeting", wait_for_other, ""),
    ]
    assert [(one.name, one.state, one.fix) for one in await run_all(checks)] == [
        ("hanging", "failed", "Check it."), ("meeting", "ok", ""), ("meeting", "ok", ""),
    ]  # fmt: skip


async def doctor(directory: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *[*preloaded_command(), "doctor", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(directory), "PYTHONPATH": str(Path.cwd()), **environment},
        cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), timeout=120)
    return process.returncode or 0, out.decode()


@asynccontextmanager
async def running_worker(data: Path) -> AsyncIterator[None]:
    """Runs the Redis of a server, and reports a worker to it."""
    async with run_embedded_redis(data) as url:
        heartbeats = Heartbeats(url)
        beating = asyncio.create_task(heartbeats.keep_beating("a-worker"))
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
            await heartbeats.close()


@pytest.mark.slow
async def test_doctor_prints_text_or_json_and_sets_its_exit_code(tmp_path: Path, short_tmp: Path) -> None:
    async with (
        server_under_test(tmp_path) as server,
        running_worker(short_tmp),
        RecordedModel([FIT], answers_probes=False) as fit,
        RecordedModel([UNSUITABLE], answers_probes=False) as unfit,
    ):
        settings = {
            "PATCHWRIGHT_DATA": str(short_tmp),
            "PATCHWRIGHT_SANDBOX": "local",
            "PATCHWRIGHT_APP_ID": str(server.app.id),
            "PATCHWRIGHT_PRIVATE_KEY": server.app.private_key_pem,
            "PATCHWRIGHT_WEBHOOK_SECRET": SECRET,
            "PATCHWRIGHT_PUBLIC_URL": server.settings["public_url"],
            "PATCHWRIGHT_MODEL_API_KEY": "sk-of-a-doctor",
            "GITHUB_SERVER_URL": server.fake_github.server_url,
        }
        good_model = {"PATCHWRIGHT_MODEL": "openai/gpt-4o", "PATCHWRIGHT_MODEL_BASE_URL": fit.base_url}
        bad_model = {"PATCHWRIGHT_MODEL": "openai/gpt-4o", "PATCHWRIGHT_MODEL_BASE_URL": unfit.base_url}
        code, result = await doctor(tmp_path, **settings, **good_model)
        assert (code, "\033" in result) == (0, False), result
        assert result.startswith("ok       data directory    ")
        assert ", 0 failed.\n" in result
        code, result = await doctor(tmp_path, "--json", **settings, **bad_model)
        report = json.loads(result)
        assert (code, report["healthy"]) == (3, False)
        assert [one["name"] for one in report["checks"] if one["state"] == "failed"] == ["model"]
        assert not any(secret in result for secret in (SECRET, "sk-of-a-doctor"))
        stopped = settings | good_model | {"PATCHWRIGHT_DATA": str(tmp_path)}
        code, result = await doctor(tmp_path, **stopped)
        assert (
            code,
            f"failed   server            not running: no server uses the data directory {tmp_path}" in result,
        ) == (3, True)
        assert "-> Start patchwright serve." in result
