"""`patchwright doctor`: each requirement broken once, and what is said of it."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from bot.doctor import engine, github, machine, redis
from bot.doctor.examine import Check, Finding, State, examined, ok
from bot.embedded import embedded_redis
from bot.errors import QueueDown
from bot.setup import kept
from bot.setup.github import EVENTS_ASKED, PERMISSIONS
from bot.webhooks.receiver import Receiver
from demo.loopback import Loopback
from demo.model import Endpoint
from demo.world import App, Repository, World
from resolver.settings.settings import Settings
from tests.bot.terminal.test_probing import FIT, UNFIT

SECRET = "secret-of-a-webhook"


async def found(checks: Sequence[Check]) -> list[Finding]:
    return [finding async for finding in examined(checks)]


async def one(checks: Sequence[Check], name: str, state: State) -> Finding:
    """The finding of this name and state."""
    every = await found(checks)
    chosen = [finding for finding in every if (finding.name, finding.state) == (name, state)]
    assert chosen, every
    return chosen[0]


def states(findings: Sequence[Finding]) -> set[str]:
    return {finding.state for finding in findings}


class Stored:
    """A store that is away."""

    async def put(self, guid: str, event: str, body: bytes) -> None:
        raise QueueDown("Redis does not answer")


@dataclass
class Patient:
    """A server as GitHub sees it, and what doctor is told."""

    world: World
    app: App
    repo: Repository
    settings: dict[str, Any] = field(default_factory=dict)

    def checks(self, **other: Any) -> list[Check]:
        settings = Settings(**{**self.settings, **other})
        return github.checks(settings, self.app.private_key_pem)


@asynccontextmanager
async def patient(data: Path, path: str = "/webhook", secret: str = SECRET) -> AsyncIterator[Patient]:
    """Well, unless GitHub calls another path, or signs with another secret."""
    receiver = Receiver(Stored(), SECRET)

    async def alive() -> tuple[int, str, bytes]:
        return 200, "application/json", b"{}"

    receiver.pages = {"/healthz": alive}
    served = Loopback(receiver)
    await served.start()
    try:
        async with World() as world:
            repo = world.repository("acme/calc", {"a": "b"}, permissions={"maintainer": "write"})
            app = world.app(permissions=PERMISSIONS)
            app.events = sorted(EVENTS_ASKED)
            world.install(app, repo)
            hook = world.hook(served.url + path, secret)
            await world.send(hook, "ping", "", b'{"zen": "Keep it logically awesome."}', guid="first")
            yield Patient(
                world, app, repo,
                {
                    "data": data, "app_id": str(app.id), "webhook_secret": SECRET, "public_url": served.url,
                    "github_api_url": world.api_url, "github_server_url": world.server_url,
                },
            )  # fmt: skip
    finally:
        await served.stop()


# --- GitHub -------------------------------------------------------------------------------------------------


async def test_a_well_server_is_known_installed_reached_and_lacks_nothing(tmp_path: Path) -> None:
    async with patient(tmp_path) as well:
        findings = await found(well.checks())
        assert states(findings) == {"ok"}, findings
        (webhook,) = [finding for finding in findings if finding.name == "webhook"]
        assert webhook.seen == "GitHub reaches it, and a ping that was asked for just now was verified"
        assert any("a token was minted, good for 60 minutes" in finding.seen for finding in findings)
        pings = [one for one in well.world.deliveries if one.event == "ping"]
        assert [ping.status for ping in pings] == [200, 200]
        # Nothing else was asked for.
        assert [write.path.rpartition("/")[2] for write in well.world.writes] == ["attempts"]


async def test_another_key_is_told_as_such(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        checks = github.checks(Settings(**ill.settings), ill.world.app("other").private_key_pem)
        said = await one(checks, "GitHub App", "failed")
        assert said.seen.startswith("GitHub does not know us:")
        assert "a new key is made on the App's page" in said.mend


async def test_a_key_that_is_none_is_told_without_a_word_of_it(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        said = await one(github.checks(Settings(**ill.settings), "-----nonsense"), "GitHub App", "failed")
        assert said.seen == "the App's private key is no PEM private key"


@pytest.mark.parametrize(
    ("without", "state"), [("contents", "failed"), ("checks", "warning"), ("statuses", "warning")]
)
async def test_a_permission_that_lacks_is_named_with_where_it_is_granted(
    tmp_path: Path, without: str, state: State
) -> None:
    async with patient(tmp_path) as ill:
        del ill.app.permissions[without]
        said = await one(ill.checks(), "permissions", state)
        assert f"the App patchwright lacks {without}: {PERMISSIONS[without]}" in said.seen
        assert said.mend == f"Grant it at {ill.world.server_url}/apps/patchwright."


async def test_an_app_that_is_nowhere_installed_is_told_so(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        ill.app = ill.world.app("lonely", PERMISSIONS)
        checks = ill.checks(app_id=str(ill.app.id))
        assert "nowhere installed" in (await one(checks, "installations", "failed")).seen


@pytest.mark.parametrize(
    ("path", "secret", "seen", "mend"),
    [
        ("/webhook", "another", "401", "The secret on the App's page is not the one set here"),
        ("/hooks", SECRET, "404", "it has to lead to patchwright serve, path /webhook"),
    ],
)
async def test_a_delivery_that_is_refused_is_told_with_its_mend(
    tmp_path: Path, path: str, secret: str, seen: str, mend: str
) -> None:
    async with patient(tmp_path, path, secret) as ill:
        checks = [check for check in ill.checks() if check.name == "webhook"]
        said = (await found(checks))[-1]
        assert said.state == "failed"
        assert f"a ping that was asked for just now came to nothing: {seen}" in said.seen
        assert mend in said.mend


async def test_a_server_that_github_does_not_reach_hears_of_firewalls_and_polling(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        hook = ill.world.hook("http://127.0.0.1:1/webhook", SECRET)
        await ill.world.send(hook, "ping", "", b"{}", guid="later")
        said = (await found([check for check in ill.checks() if check.name == "webhook"]))[-1]
        assert (said.state, said.mend) == ("failed", github.FIREWALL)


async def test_an_address_that_is_not_the_server_s_is_told(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        said = await one(ill.checks(public_url="http://127.0.0.1:1"), "webhook", "warning")
        assert "not http://127.0.0.1:1/webhook" in said.seen
        assert (
            "no answer"
            in (await one(ill.checks(public_url="http://127.0.0.1:1"), "public address", "failed")).seen
        )


async def test_a_clock_that_is_off_is_told_with_how_much(tmp_path: Path) -> None:
    import httpx

    for minutes, state in ((0, "ok"), (5, "failed")):
        date = format_datetime(datetime.now(UTC) - timedelta(minutes=minutes), usegmt=True)
        said = github._clock(httpx.Response(200, headers={"date": date}))
        assert said.state == state
    assert said.seen in ("300 s ahead of GitHub's", "301 s ahead of GitHub's")
    assert github._clock(httpx.Response(200)).state == "warning"


async def test_without_a_secret_the_webhook_is_missing_unless_the_server_polls(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        ill.settings["webhook_secret"] = None
        assert "its secret is not set" in (await one(ill.checks(), "webhook", "failed")).seen
        assert "looks at GitHub" in (await one(ill.checks(poll=True), "webhook", "ok")).seen


async def test_github_that_is_down_or_answers_garbage_fails_each_check_with_a_sentence(
    tmp_path: Path,
) -> None:
    async with patient(tmp_path) as ill:
        ill.world.refuse_next("GET", "/app", status=500, times=2)
        said = await one(ill.checks(), "GitHub App", "failed")
        assert "GitHub answered 500" in said.seen
        nobody = await found(ill.checks(github_api_url="http://127.0.0.1:1"))
        assert {finding.state for finding in nobody if finding.name != "public address"} == {"failed"}
        assert all("no answer from 127.0.0.1:1" in one.seen for one in nobody if one.name != "public address")


async def test_a_token_is_judged_by_what_it_may_do_where_it_looks(tmp_path: Path) -> None:
    async with patient(tmp_path) as ill:
        plain = {"data": tmp_path, "github_api_url": ill.world.api_url, "poll": True}
        token = ill.world.token("maintainer")
        settings = Settings(**plain, github_token=token, repositories=("acme/calc",))
        assert states(await found(github.checks(settings, None))) == {"ok"}
        stranger = Settings(
            **plain, github_token=ill.world.token("stranger"), repositories=("acme/calc", "acme/none")
        )
        assert [finding.seen for finding in await found(github.checks(stranger, None))][2:] == [
            "the token may not write to acme/calc",
            "the token does not see acme/none",
        ]
        wrong = Settings(**plain, github_token="ghp_wrong")
        assert "GitHub does not know it" in (await one(github.checks(wrong, None), "token", "failed")).seen


async def test_a_server_that_nobody_has_set_up_hears_how(tmp_path: Path) -> None:
    said = await one(github.checks(Settings(data=tmp_path), None), "GitHub App", "failed")
    assert said.mend.startswith("Start patchwright serve and open the page that it names")


# --- the machine and Redis ----------------------------------------------------------------------------------


def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (good,) = machine.data_directory(tmp_path / "new" / "data")
    assert good.state == "ok"
    assert not (tmp_path / "new").exists()
    (bad,) = machine.data_directory(Path("/proc/1"))
    assert (bad.state, bad.mend) == ("failed", "Let this user write in /proc/1, or set PATCHWRIGHT_DATA.")


def test_a_key_that_others_can_read_is_told_with_the_command_that_mends_it(tmp_path: Path) -> None:
    kept.keep(tmp_path, kept.Kept(model=kept.ChosenModel(model="openai/gpt-4o")))
    assert [finding.state for finding in machine.data_directory(tmp_path)] == ["ok"]
    kept.path_in(tmp_path).chmod(0o644)
    loose = machine.data_directory(tmp_path)[1]
    assert loose.state == "warning"
    assert "kept.json has mode 0644" in loose.seen
    command, _, _ = loose.mend.partition(";")
    subprocess.run(["sh", "-c", command], check=True)
    assert [finding.state for finding in machine.data_directory(tmp_path)] == ["ok"]


def test_disk_and_memory_that_do_not_do_are_told(tmp_path: Path) -> None:
    much = Settings(data=tmp_path, free_disk_mb=1 << 40, free_memory_mb=1 << 40)
    assert (machine.disk(much)[0].state, machine.memory(much)[0].state) == ("failed", "failed")
    crowd = Settings(data=tmp_path, jobs_at_once=64, memory_mb=1 << 20, free_disk_mb=0)
    assert machine.memory(crowd)[0].state == "warning"


async def test_a_redis_that_is_away_is_told(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, redis_url="redis://127.0.0.1:1/0")
    said = await one(redis.checks(settings), "redis", "failed")
    assert (said.seen, said.mend) == (
        "Redis does not answer: ConnectionError",
        "Start it, or correct REDIS_URL.",
    )


@pytest.mark.redis
async def test_the_embedded_redis_of_a_server_that_runs_is_found_and_asked(short_tmp: Path) -> None:
    settings = Settings(data=short_tmp)
    assert "will start an embedded one" in (await one(redis.checks(settings), "redis", "ok")).seen
    async with embedded_redis(short_tmp):
        findings = await found(redis.checks(settings))
    assert [(finding.name, finding.state) for finding in findings] == [
        ("redis", "ok"), ("redis keeps", "ok"), ("redis memory", "ok"), ("workers", "warning"),
    ]  # fmt: skip


async def test_a_redis_that_was_killed_with_its_server_is_told_as_one_that_does_not_run(
    short_tmp: Path,
) -> None:
    (short_tmp / "redis").mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(short_tmp / "redis/redis.sock"))
    said = await one(redis.checks(Settings(data=short_tmp)), "redis", "warning")
    assert said.mend.startswith("Start patchwright serve")


def test_a_redis_that_forgets_or_throws_away_is_told() -> None:
    assert redis._kept({"aof_enabled": 0}).state == "warning"
    assert redis._kept({"aof_enabled": 1, "aof_last_write_status": "err"}).state == "failed"
    assert redis._room({"maxmemory": 1, "maxmemory_policy": "allkeys-lru"}).state == "failed"
    assert redis._itself({"redis_version": "5.0.14"}).state == "failed"


# --- the engine ---------------------------------------------------------------------------------------------


async def test_an_engine_that_does_not_answer_is_told_with_how_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    said = await one(engine.checks(Settings(data=tmp_path), {}), "engine", "failed")
    assert "no Docker engine answers" in said.seen


@pytest.mark.docker
async def test_an_engine_holds_a_container_to_its_limits(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path, memory_mb=300, pids=77, cpus=0.5)
    said = await one(engine.checks(settings, {}), "sandbox limits", "ok")
    assert said.seen.startswith("a container was held to 300 MiB, 77 processes, 0.5 processors")
    absent = Settings(data=tmp_path, image="no-such-image:here")
    assert (
        "no-such-image:here is not here"
        in (await one(engine.checks(absent, {}), "base image", "warning")).seen
    )


def test_the_engines_own_disk_is_looked_at(tmp_path: Path) -> None:
    for floor, state in ((0, "ok"), (1 << 40, "failed")):
        (found,) = engine._room(Settings(data=tmp_path, free_disk_mb=floor), tmp_path)
        assert (found.state, str(tmp_path) in found.seen) == (state, True)
    assert engine._room(Settings(data=tmp_path), tmp_path / "elsewhere") == []  # in a VM


def test_an_engine_that_is_too_old_or_cannot_limit_is_told() -> None:
    assert engine._itself({"ServerVersion": "19.03.1"})[0].state == "failed"
    (limits,) = engine._itself({"ServerVersion": "28.0.1", "MemoryLimit": False})[1:]
    assert limits.seen == "it cannot limit memory"


# --- how it is told -----------------------------------------------------------------------------------------


async def test_checks_are_done_side_by_side_and_one_that_hangs_has_failed() -> None:
    both = asyncio.Barrier(2)

    async def meets() -> list[Finding]:
        await both.wait()
        return [ok("meeting", "met")]

    async def hangs() -> list[Finding]:
        await asyncio.Event().wait()
        return []

    checks = [
        Check("hanging", hangs, "Look at it.", seconds=0.05),
        Check("meeting", meets, ""),
        Check("meeting", meets, ""),
    ]
    assert [(one.name, one.state, one.mend) for one in await found(checks)] == [
        ("hanging", "failed", "Look at it."), ("meeting", "ok", ""), ("meeting", "ok", ""),
    ]  # fmt: skip


async def doctor(directory: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "bot.cli", "doctor", *arguments],
        env={"PATH": os.environ["PATH"], "HOME": str(directory), "PYTHONPATH": str(Path.cwd()), **environment},
        cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), timeout=120)
    return process.returncode or 0, out.decode()


async def test_the_command_says_all_in_lines_or_as_json_and_ends_by_what_it_found(tmp_path: Path) -> None:
    async with patient(tmp_path) as well, Endpoint([FIT]) as fit, Endpoint([UNFIT]) as unfit:
        told = {
            "PATCHWRIGHT_SANDBOX": "local",
            "PATCHWRIGHT_APP_ID": str(well.app.id),
            "PATCHWRIGHT_PRIVATE_KEY": well.app.private_key_pem,
            "PATCHWRIGHT_WEBHOOK_SECRET": SECRET,
            "PATCHWRIGHT_PUBLIC_URL": well.settings["public_url"],
            "PATCHWRIGHT_MODEL_API_KEY": "sk-of-a-doctor",
            "GITHUB_API_URL": well.world.api_url,
        }
        works = {"PATCHWRIGHT_MODEL": "openai/gpt-4o", "PATCHWRIGHT_MODEL_BASE_URL": fit.base_url}
        fails = {"PATCHWRIGHT_MODEL": "openai/gpt-4o", "PATCHWRIGHT_MODEL_BASE_URL": unfit.base_url}
        code, said = await doctor(tmp_path, **told, **works)
        assert (code, "\033" in said) == (0, False), said
        assert said.startswith("ok       data directory    ")
        assert ", 0 failed.\n" in said
        code, said = await doctor(tmp_path, "--json", **told, **fails)
        findings = json.loads(said)
        assert (code, findings["healthy"]) == (1, False)
        assert [one["name"] for one in findings["findings"] if one["state"] == "failed"] == ["model"]
        assert not any(secret in said for secret in (SECRET, "sk-of-a-doctor"))
