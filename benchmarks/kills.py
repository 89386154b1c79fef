"""Measures what is lost or duplicated when a worker is killed (SIGKILL) at every step of a run, and another
continues.

Two `patchwright work` processes wait on one Redis. The one that takes the job is killed at one point of it:
when a line of its log is only on its own disk, when the line has just been shared, while the model thinks,
during a command, while the patch is verified, and before and after each write to GitHub. The leases are those
of production. Afterwards the pull request must equal that of a run without a kill, and be the only one; no
call may have run twice.

The sandboxes are alternately containers and local. The two workers alternately share a disk (so that the
other one can adopt log and container) or do not, as on two machines. GitHub is the fake server (demo/github),
which checks each request with GitHub's API description. It takes a quarter of an hour: `script/bench long`.
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
from patchwright.bot.redis.arq_queue import ArqQueue
from patchwright.bot.redis.connection import redis_client
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.bot.redis.shared_run_log import stream_key
from patchwright.demo.github import FakeGitHub, Repository
from patchwright.demo.recorded_model import UNIQUE_TEXT, RecordedModel, RecordedTurn
from patchwright.resolver.domain import Job, JobId, Repo, User
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import ReplaceText, RunShell
from patchwright.runtime.docker.reaper import RUN_LABEL

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
DONE = Finish(cause="add() subtracted.", change="It adds now.", testing="python3 -m unittest: all pass.")

AT_ONCE = 6  # trials; they mostly wait for leases
MOST_SECONDS = 300.0  # for one trial
OUTLIVE = 90.0  # seconds that a container may exist after its job has ended: guarantee R7
TALLY = "/home/agent/tally"  # in a container
FOR_IMAGES = ("PATCHWRIGHT_CA_BUNDLE", "PATCHWRIGHT_PACKAGE_INDEX", "DOCKER_HOST")

Kind: TypeAlias = Literal["docker", "local"]


@dataclass
class KillTrialResult:
    """The results of one trial."""

    point: Point | None
    sandbox: Kind
    same_disk: bool
    killed: bool = False
    resumed: float = 0.0
    """Seconds from the kill to the next line of the log, or to the end if no line was left to write."""
    result_kind: str = "nothing"
    """The kind of the job's result."""
    lines: int = 0
    """Lines of the log at the end."""
    writes: int = 0
    executed: Counter[str] = field(default_factory=Counter)
    """Number of executions per call."""
    diff: str = ""
    pulls: int = 0
    comments: int = 0
    branches: int = 0
    outlived: float = 0.0
    """Seconds that the last container existed after the job's end."""

    @property
    def twice(self) -> int:
        """Calls that ran more than once."""
        return sum(times > 1 for times in self.executed.values())

    @property
    def doubled(self) -> int:
        """Pull requests, branches, and status comments beyond one of each."""
        return max(0, self.pulls - 1) + max(0, self.comments - 1) + max(0, self.branches - 1)


class KillTrial:
    """One issue, two workers, one Redis."""

    def __init__(self, point: Point | None, sandbox: Kind, *, same_disk: bool) -> None:
        self._result = KillTrialResult(point, sandbox, same_disk)
        self._killer = Killer(point)

    async def run(self) -> KillTrialResult:
        async with AsyncExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pwk-", dir="/tmp")))
            (directory / "tally").touch()
            fake_github = await stack.enter_async_context(FakeGitHub())
            files = {"calc.py": CODE, "test_calc.py": TESTS, ".github/patchwright.toml": CONFIG}
            repo = fake_github.create_repository("acme/calc", files, permissions={"maintainer": "write"})
            environment = worker_environment(fake_github, repo, directory, self._result.sandbox)
            issue = fake_github.create_issue(
                repo, title="add(2, 3) gives -1", body="It should give 5.", by="reporter"
            )
            person = fake_github.user("maintainer")
            self._job = Job(
                id=JobId(f"acme-calc-{issue.number}-{directory.name}"),
                repo=Repo(owner="acme", name="calc"),
                number=issue.number,
                requester=User(id=person.id, login=person.login),
            )
            tally = TALLY if self._result.sandbox == "docker" else str(directory / "tally")
            model = RecordedModel(make_turns(tally), on_request=self._killer.on_model_request)
            environment["PATCHWRIGHT_MODEL_BASE_URL"] = (await stack.enter_async_context(model)).base_url
            url = await stack.enter_async_context(run_embedded_redis(directory))
            relays = [Relay(url, self._killer) for _ in range(2)]
            for number, relay in enumerate(relays):
                data = directory / ("one" if self._result.same_disk else str(number))
                address = await stack.enter_async_context(relay.listening())
                more = {"REDIS_URL": address, "PATCHWRIGHT_DATA": str(data)}
                relay.process = await stack.enter_async_context(working(environment | more))
            fake_github.observe_writes(self._killer.witness)
            queue = ArqQueue(url)
            stack.push_async_callback(queue.close)
            await queue.put(self._job)
            containers = Containers(self._job.id) if self._result.sandbox == "docker" else None
            ended = await self._ended(queue, containers)
            known = await queue.get_record(self._job.id)
            self._result.result_kind = known.result.kind if known and known.result else "nothing"
            await self._look(url, relays, ended or time.monotonic(), containers)
            self._result.executed.update((directory / "tally").read_text().split())
            self._delivered(repo)
        return self._result

    async def _ended(self, queue: ArqQueue, containers: "Containers | None") -> float | None:
        """Returns the time of the job's end; None if it did not end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MOST_SECONDS):
                while (known := await queue.get_record(self._job.id)) is None or known.state != "completed":
                    await asyncio.sleep(0.25)
                    if containers is not None:
                        await asyncio.to_thread(containers.look)
                return time.monotonic()
        return None

    async def _look(
        self, url: str, relays: list[Relay], ended: float, containers: "Containers | None"
    ) -> None:
        results, killer = self._result, self._killer
        if killer.at is not None:
            (heir,) = (each for each in relays if each.process and each.process.pid != killer.victim)
            results.killed, results.resumed = True, (heir.first_line or ended) - killer.at
        redis = redis_client(url)
        results.lines = await redis.xlen(stream_key(self._job.id))
        await redis.aclose()
        results.writes = killer.writes
        if containers is not None:
            for _ in range(round(2 * OUTLIVE)):
                if not await asyncio.to_thread(containers.look):
                    break
                await asyncio.sleep(1)
            results.outlived = time.monotonic() - ended
            containers.close()
            results.executed.update(containers.executed())

    def _delivered(self, repo: Repository) -> None:
        results = self._result
        branches = [name for name in repo.branches if name != "main"]
        results.branches, results.pulls = len(branches), len(repo.pulls)
        results.comments = sum("<!-- patchwright:" in one.body for one in repo.comments(self._job.number))
        for pull in repo.pulls:
            changed = repo.bare.git("diff", "main", pull.head.ref).decode()
            results.diff += f"{pull.title}\ndraft: {pull.draft}\n{changed}"


def make_turns(tally: str) -> tuple[RecordedTurn, ...]:
    """Returns the recording of a model that fixes CODE. Each command adds a text of its own to the file `tally`."""

    def turn(thought: str, command: str) -> RecordedTurn:
        return RecordedTurn(thought, RunShell(command=f"echo {UNIQUE_TEXT} >> {tally}; {command}"))

    return (
        turn("Look around.", "ls; cat calc.py"),
        RecordedTurn("Fix it.", ReplaceText(path="calc.py", old="a - b", new="a + b")),
        RecordedTurn("Test it.", TEST),
        turn("Take some time.", f"sleep {HANGS:g}"),
        turn("Run the tests.", "python3 -m unittest; sleep 2"),  # until its tally was read
        RecordedTurn("Done.", DONE),
    )


def worker_environment(
    fake_github: FakeGitHub, repo: Repository, directory: Path, sandbox: Kind
) -> dict[str, str]:
    """Returns the variables of a worker of an App in this repository, without its model and Redis."""
    app = fake_github.create_app()
    fake_github.install_app(app, repo)
    return {
        **{name: value for name, value in os.environ.items() if name in FOR_IMAGES},
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(directory),
        "PATCHWRIGHT_SANDBOX": sandbox,
        "PATCHWRIGHT_SANDBOX_FEATURES": "none",
        "PATCHWRIGHT_RISK_THRESHOLD": "never",  # the tally is outside the work tree
        "PATCHWRIGHT_MODEL": "openai/scripted",
        "PATCHWRIGHT_MODEL_API_KEY": "sk-benchmark",
        "PATCHWRIGHT_APP_ID": str(app.id),
        "PATCHWRIGHT_PRIVATE_KEY": app.private_key_pem,
        "PATCHWRIGHT_WEBHOOK_SECRET": "benchmark",
        "GITHUB_SERVER_URL": fake_github.server_url,
    }


class Containers:
    """The containers of one job, and what ran in each, as last observed."""

    def __init__(self, job: JobId) -> None:
        self._job = job
        self._client = docker.from_env()
        self._tallies: dict[str, str] = {}

    def look(self) -> int:
        """Returns the number of containers."""
        found = self._client.containers.list(all=True, ignore_removed=True, filters={"label": RUN_LABEL})
        ours = [each for each in found if each.labels[RUN_LABEL].startswith(self._job)]
        for container in ours:
            with contextlib.suppress(docker.errors.APIError):  # there is none yet, or it is ending
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
    """Runs `patchwright work` in its own process, ready for jobs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "patchwright", "work"), env=environment, stdout=subprocess.PIPE,
        stderr=None if "VERBOSE" in os.environ else subprocess.DEVNULL, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(120):
            if not (await process.stdout.readline()).startswith(b"patchwright worker ready"):
                raise RuntimeError("a worker does not start")
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


def points(reference: KillTrialResult) -> list[Point]:
    """Returns every point of a run without a kill."""
    moments: tuple[Literal["before", "after"], ...] = ("before", "after")
    return [
        *(Point("line", number, moment) for number in range(reference.lines) for moment in moments),
        *(Point("model", turn) for turn in range(TURNS)),
        Point("command", 0),
        *(Point("proof", tenths) for tenths in PROOF),
        *(Point("edit", 1, moment) for moment in moments),
        *(Point("write", number, moment) for number in range(1, reference.writes + 1) for moment in moments),
    ]


async def killed(
    select_points: Callable[[KillTrialResult], list[Point]],
) -> tuple[KillTrialResult, list[KillTrialResult]]:
    """Returns a run without a kill, and one for each requested point of it."""
    reference = await KillTrial(None, "local", same_disk=False).run()
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, point: Point) -> KillTrialResult:
        async with gate:
            kind: Kind = "docker" if number % 2 == 0 else "local"
            return await KillTrial(point, kind, same_disk=number // 2 % 2 == 0).run()

    chosen = select_points(reference)
    return reference, list(await asyncio.gather(*(one(number, point) for number, point in enumerate(chosen))))


def measure() -> list[Result]:
    """Returns how long a job waits, and what was lost or duplicated over all points."""

    def shuffled(reference: KillTrialResult) -> list[Point]:
        every = points(reference)
        random.Random(7).shuffle(every)
        return every

    reference, results = asyncio.run(killed(shuffled))
    wrong = [one for one in results if is_wrong(one, reference)]
    for one in wrong:
        print(one, file=sys.stderr)

    def result(name: str, value: float, target: float | None, unit: str = "") -> Result:
        return Result(name=f"kills_{name}", value=round(value, 1), unit=unit, floor=None, target=target)

    return [
        result("points", sum(one.killed for one in results), 30).model_copy(update={"better": "higher"}),
        result("resumed_worst", max(one.resumed for one in results), 60, "s"),
        result("resumed_median", statistics.median(one.resumed for one in results), None, "s"),
        result("not_ended", sum(one.result_kind != reference.result_kind for one in results), 0),
        result("other_diffs", sum(one.diff != reference.diff for one in results), 0),
        result("executed_twice", sum(one.twice for one in results), 0),
        result("doubled", sum(one.doubled for one in results), 0),
        result("containers_outlive", max(one.outlived for one in results), OUTLIVE, "s"),
    ]


def is_wrong(one: KillTrialResult, reference: KillTrialResult) -> bool:
    """True if anything was lost or duplicated."""
    return (
        not one.killed
        or one.result_kind != reference.result_kind
        or bool(one.twice or one.doubled)
        or one.diff != reference.diff
    )


if __name__ == "__main__":
    report(measure())
