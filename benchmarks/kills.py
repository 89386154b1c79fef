"""What is lost and what is done twice when a worker is killed (SIGKILL) at every step of a run, and another goes on.

Two `patchwright work` processes wait on one Redis; whichever takes the job is killed at one point of it: when a line
of its log is on its own disk alone, when the line has just been shared, while the model thinks, in the middle of a
command, while the patch is proven, before each write to GitHub and after it, before its answer is read. The leases are
those of production. Afterwards the pull request must be the one of a run that nobody killed, and alone; no call may
have been executed twice. By turns the sandboxes are containers and local, and the two workers share a disk (so that
the other one can adopt log and container) or do not, as on two machines. GitHub is the stand-in (demo/world), which
judges each request by GitHub's description. It takes a quarter of an hour: `script/bench long`.
"""

import asyncio
import contextlib
import io
import os
import random
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import docker
import docker.errors

from benchmarks.killer import HANGS, PROOF, Killer, Point, Relay
from benchmarks.measure import Result, report
from bot.embedded import embedded_redis
from bot.redis.client import redis_client
from bot.redis.log import stream_of
from bot.redis.queue import ArqQueue
from demo.model import ONCE, Endpoint, Turn
from demo.world import Repository, World
from resolver.actions import Finish
from resolver.domain import Job, JobId, Repo, User
from runtime.actions import ReplaceText, RunShell
from runtime.docker.reaper import RUN

CODE = "def add(a, b):\n    return a - b\n"
TESTS = """import unittest

from calc import add


class Add(unittest.TestCase):
    def test_zero(self) -> None:
        self.assertEqual(add(0, 0), 0)
"""
CONFIG = '[[tests]]\ncommand = "python3 -m unittest -v"\n'
TEST = ReplaceText(
    path="test_calc.py",
    old="class Add(unittest.TestCase):\n",
    new="class Add(unittest.TestCase):\n    def test_adds(self) -> None:\n        self.assertEqual(add(2, 3), 5)\n\n",
)
TURNS = 6
DONE = Finish(cause="add() subtracted.", change="It adds now.", checked="python3 -m unittest: all pass.")

AT_ONCE = 6  # scenes; mostly they wait for leases
MOST_SECONDS = 300.0  # of one scene
OUTLIVE = 90.0  # seconds that a container may be there after its job has ended: promise R7
TALLY = "/home/agent/tally"  # in a container
FOR_IMAGES = ("PATCHWRIGHT_CA_BUNDLE", "PATCHWRIGHT_PACKAGE_INDEX", "DOCKER_HOST")

Kind: TypeAlias = Literal["docker", "local"]


@dataclass
class Seen:
    """What one scene came to."""

    point: Point | None
    sandbox: Kind
    same_disk: bool
    killed: bool = False
    resumed: float = 0.0
    """Seconds from the kill to the next line of the log, or to the end where none was left to write."""
    came_to: str = "nothing"
    """The kind of the job's result."""
    lines: int = 0
    """Of the log, at the end."""
    writes: int = 0
    executed: Counter[str] = field(default_factory=Counter)
    """How often each call was."""
    diff: str = ""
    pulls: int = 0
    comments: int = 0
    branches: int = 0
    outlived: float = 0.0
    """Seconds that the last container was there after the job's end."""

    @property
    def twice(self) -> int:
        """Calls that were executed more than once."""
        return sum(times > 1 for times in self.executed.values())

    @property
    def doubled(self) -> int:
        """Pull requests, branches and status comments beyond the one of each."""
        return max(0, self.pulls - 1) + max(0, self.comments - 1) + max(0, self.branches - 1)


class Scene:
    """One issue, two workers, one Redis."""

    def __init__(self, point: Point | None, sandbox: Kind, *, same_disk: bool) -> None:
        self._seen = Seen(point, sandbox, same_disk)
        self._killer = Killer(point)

    async def run(self) -> Seen:
        async with AsyncExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pwk-", dir="/tmp")))
            (place / "tally").touch()
            world = await stack.enter_async_context(World())
            files = {"calc.py": CODE, "test_calc.py": TESTS, ".github/patchwright.toml": CONFIG}
            repo = world.repository("acme/calc", files, permissions={"maintainer": "write"})
            environment = self._environment(world, repo, place)
            issue = world.issue(repo, title="add(2, 3) gives -1", body="It should give 5.", by="reporter")
            person = world.user("maintainer")
            self._job = Job(
                id=JobId(f"acme-calc-{issue.number}-{place.name}"),
                repo=Repo(owner="acme", name="calc"),
                number=issue.number,
                requester=User(id=person.id, login=person.login),
            )
            model = Endpoint(self._turns(place), on_request=self._killer.asked)
            environment["PATCHWRIGHT_MODEL_BASE_URL"] = (await stack.enter_async_context(model)).base_url
            url = await stack.enter_async_context(embedded_redis(place))
            relays = [Relay(url, self._killer) for _ in range(2)]
            for number, relay in enumerate(relays):
                data = place / ("one" if self._seen.same_disk else str(number))
                address = await stack.enter_async_context(relay.listening())
                more = {"REDIS_URL": address, "PATCHWRIGHT_DATA": str(data)}
                relay.process = await stack.enter_async_context(working(environment | more))
            world.witness(self._killer.witness)
            queue = ArqQueue(url)
            stack.push_async_callback(queue.close)
            await queue.put(self._job)
            containers = Containers(self._job.id) if self._seen.sandbox == "docker" else None
            ended = await self._ended(queue, containers)
            known = await queue.state(self._job.id)
            self._seen.came_to = known.result.kind if known and known.result else "nothing"
            await self._look(url, relays, ended or time.monotonic(), containers)
            self._seen.executed.update((place / "tally").read_text().split())
            self._delivered(repo)
        return self._seen

    async def _ended(self, queue: ArqQueue, containers: "Containers | None") -> float | None:
        """When the job did; None: it did not."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MOST_SECONDS):
                while (known := await queue.state(self._job.id)) is None or known.state != "ended":
                    await asyncio.sleep(0.25)
                    if containers is not None:
                        await asyncio.to_thread(containers.look)
                return time.monotonic()
        return None

    async def _look(
        self, url: str, relays: list[Relay], ended: float, containers: "Containers | None"
    ) -> None:
        seen, killer = self._seen, self._killer
        if killer.at is not None:
            (heir,) = (each for each in relays if each.process and each.process.pid != killer.victim)
            seen.killed, seen.resumed = True, (heir.first_line or ended) - killer.at
        redis = redis_client(url)
        seen.lines = await redis.xlen(stream_of(self._job.id))
        await redis.aclose()
        seen.writes = killer.writes
        if containers is not None:
            for _ in range(round(2 * OUTLIVE)):
                if not await asyncio.to_thread(containers.look):
                    break
                await asyncio.sleep(1)
            seen.outlived = time.monotonic() - ended
            containers.close()
            seen.executed.update(containers.executed())

    def _delivered(self, repo: Repository) -> None:
        seen = self._seen
        branches = [name for name in repo.branches if name != "main"]
        seen.branches, seen.pulls = len(branches), len(repo.pulls)
        seen.comments = sum("<!-- patchwright:" in one.body for one in repo.comments(self._job.number))
        for pull in repo.pulls:
            changed = repo.bare.git("diff", "main", pull.head.ref).decode()
            seen.diff += f"{pull.title}\ndraft: {pull.draft}\n{changed}"

    def _turns(self, place: Path) -> tuple[Turn, ...]:
        tally = TALLY if self._seen.sandbox == "docker" else str(place / "tally")

        def told(thought: str, command: str) -> Turn:
            return Turn(thought, RunShell(command=f"echo {ONCE} >> {tally}; {command}"))

        return (
            told("Look around.", "ls; cat calc.py"),
            Turn("Mend it.", ReplaceText(path="calc.py", old="a - b", new="a + b")),
            Turn("Test it.", TEST),
            told("Take some time.", f"sleep {HANGS:g}"),
            told("Run the tests.", "python3 -m unittest; sleep 2"),  # until its tally was looked at
            Turn("Done.", DONE),
        )

    def _environment(self, world: World, repo: Repository, place: Path) -> dict[str, str]:
        app = world.app()
        world.install(app, repo)
        return {
            **{name: value for name, value in os.environ.items() if name in FOR_IMAGES},
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(place),
            "PATCHWRIGHT_SANDBOX": self._seen.sandbox,
            "PATCHWRIGHT_PLUGINS": "none",
            "PATCHWRIGHT_REFUSE_RISK": "never",  # the tally lies outside of the work tree
            "PATCHWRIGHT_MODEL": "openai/scripted",
            "PATCHWRIGHT_MODEL_API_KEY": "sk-benchmark",
            "PATCHWRIGHT_APP_ID": str(app.id),
            "PATCHWRIGHT_PRIVATE_KEY": app.private_key_pem,
            "PATCHWRIGHT_WEBHOOK_SECRET": "benchmark",
            "GITHUB_API_URL": world.api_url,
            "GITHUB_GRAPHQL_URL": world.graphql_url,
            "GITHUB_SERVER_URL": world.server_url,
        }


class Containers:
    """The containers of one job: what was executed in each, as it was last seen."""

    def __init__(self, job: JobId) -> None:
        self._job = job
        self._client = docker.from_env()
        self._tallies: dict[str, str] = {}

    def look(self) -> int:
        """How many there are."""
        found = self._client.containers.list(all=True, ignore_removed=True, filters={"label": RUN})
        ours = [each for each in found if each.labels[RUN].startswith(self._job)]
        for container in ours:
            with contextlib.suppress(docker.errors.APIError):  # none is there yet, or it ends just now
                archive = b"".join(container.get_archive(TALLY)[0])
                with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
                    file = packed.extractfile("tally")
                    assert file is not None
                    self._tallies[str(container.id)] = file.read().decode()
        return len(ours)

    def executed(self) -> list[str]:
        return [call for tally in self._tallies.values() for call in tally.split()]

    def close(self) -> None:
        self._client.close()


@contextlib.asynccontextmanager
async def working(environment: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """`patchwright work` as a process of its own, ready for jobs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot.cli", "work"), env=environment, stdout=subprocess.PIPE,
        stderr=None if "VERBOSE" in os.environ else subprocess.DEVNULL, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            if not (await process.stdout.readline()).startswith(b"patchwright works"):
                raise RuntimeError("a worker does not start")
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def points(whole: Seen) -> list[Point]:
    """Every point of a run that nobody killed."""
    moments: tuple[Literal["before", "after"], ...] = ("before", "after")
    return [
        *(Point("line", number, moment) for number in range(whole.lines) for moment in moments),
        *(Point("model", turn) for turn in range(TURNS)),
        Point("command", 0),
        *(Point("proof", tenths) for tenths in PROOF),
        *(Point("write", number, moment) for number in range(1, whole.writes + 1) for moment in moments),
    ]


async def killed(wanted: Callable[[Seen], list[Point]]) -> tuple[Seen, list[Seen]]:
    """A run that nobody killed, and one for each point that is wanted of it."""
    whole = await Scene(None, "local", same_disk=False).run()
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, point: Point) -> Seen:
        async with gate:
            kind: Kind = "docker" if number % 2 == 0 else "local"
            return await Scene(point, kind, same_disk=number // 2 % 2 == 0).run()

    chosen = wanted(whole)
    return whole, list(await asyncio.gather(*(one(number, point) for number, point in enumerate(chosen))))


def measure() -> list[Result]:
    """How long a job lies, and what was lost or doubled over all points."""

    def shuffled(whole: Seen) -> list[Point]:
        every = points(whole)
        random.Random(7).shuffle(every)
        return every

    whole, seen = asyncio.run(killed(shuffled))
    wrong = [one for one in seen if is_wrong(one, whole)]
    for one in wrong:
        print(one, file=sys.stderr)

    def result(name: str, value: float, target: float | None, unit: str = "") -> Result:
        return Result(name=f"kills_{name}", value=round(value, 1), unit=unit, floor=None, target=target)

    return [
        result("points", sum(one.killed for one in seen), 30).model_copy(update={"better": "higher"}),
        result("resumed_worst", max(one.resumed for one in seen), 60, "s"),
        result("resumed_median", statistics.median(one.resumed for one in seen), None, "s"),
        result("not_ended", sum(one.came_to != whole.came_to for one in seen), 0),
        result("other_diffs", sum(one.diff != whole.diff for one in seen), 0),
        result("executed_twice", sum(one.twice for one in seen), 0),
        result("doubled", sum(one.doubled for one in seen), 0),
        result("containers_outlive", max(one.outlived for one in seen), OUTLIVE, "s"),
    ]


def is_wrong(one: Seen, whole: Seen) -> bool:
    """Whether anything was lost or doubled there."""
    return (
        not one.killed
        or one.came_to != whole.came_to
        or bool(one.twice or one.doubled)
        or one.diff != whole.diff
    )


if __name__ == "__main__":
    report(measure())
