"""`patchwright work` alone does what a receiver has stored in the Redis that they share."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from bot.embedded import embedded_redis
from bot.http import Server, listening, url_of
from bot.receiver import Receiver
from bot.redis.inbox import Inbox
from tests.stories.conftest import MENDED, Scene

pytestmark = [pytest.mark.redis, pytest.mark.slow]


async def test_a_worker_on_another_disk_does_what_a_receiver_has_stored(scene: Scene, tmp_path: Path) -> None:
    await scene.will(*MENDED)
    async with embedded_redis(scene.data / "shared") as url:
        environment = scene.environment | {"REDIS_URL": url, "PATCHWRIGHT_DATA": str(tmp_path / "other")}
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bot.cli", "work"), env=environment, stdout=subprocess.PIPE
        )
        assert worker.stdout is not None
        assert (await worker.stdout.readline()).startswith(b"patchwright works")
        inbox = Inbox(url)
        with listening("127.0.0.1", 0) as socket:
            server = Server(Receiver(inbox, "story-webhook-secret"))
            serving = asyncio.create_task(server.serve(sockets=[socket]))
            scene.world.hook(f"{url_of(socket)}/webhook", "story-webhook-secret")
            await scene.world.label(scene.issue, "fix-me", by="maintainer")
            server.should_exit = True
            await serving
        async with asyncio.timeout(60):
            while not scene.repo.pulls:
                await asyncio.sleep(0.2)
        worker.terminate()
        await worker.communicate()
        await inbox.close()
    assert len(list((tmp_path / "other" / "runs").glob("*"))) == 1
    assert scene.runs == ()
