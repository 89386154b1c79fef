"""Measures what is lost or doubled when one of two servers and one of three workers are killed (SIGKILL) at work.

All share one Redis and one credentials key, and nothing else. Four conversations work on the two servers, each in its
own container, and six jobs, which came in through the HTTP API, on the three workers. When all are at work, a server
and a worker are killed. The other processes continue their work, and no client calls `run` again. The watchers of the
killed server connect to the other one, with the number of entries that they have.

Each command of the agents appends a text of its own to a file. Afterwards, each conversation and each job must have
ended as without a kill, no text may be missing or be there twice, and each watcher must have each entry once. It takes
two minutes: `script/bench long`.
"""

import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from benchmarks.conversation_server import AUTHORIZED, KEY, Server, agent, post, serve
from benchmarks.kills import CODE, CONFIG, TESTS, make_turns, worker_environment, working
from benchmarks.measure import Result, report
from patchwright.bot.redis.embedded_redis import run_embedded_redis
from patchwright.demo.github import FakeGitHub
from patchwright.demo.recorded_model import UNIQUE_TEXT, RecordedModel, RecordedTurn
from patchwright.resolver.tool_actions.control_actions import Finish
from patchwright.runtime.actions import RunShell

CONVERSATIONS, JOBS, WORKERS = 4, 6, 3
STEPS = 4
MOST_SECONDS = 600.0  # for each wait
STEP = RecordedTurn("Next.", RunShell(command=f"echo {UNIQUE_TEXT} >> tally; sleep 2"))
DONE = RecordedTurn("Done.", Finish(cause="Asked.", change="Four lines.", testing="None."))


@dataclass
class Followed:
    """A conversation, as its client sees it."""

    id: str
    workspace: str
    server: Server
    entries: list[dict[str, Any]] = field(default_factory=list)

    async def follow(self, other: Server) -> None:
        """Receives entries without end; continues on the other server if this one is gone."""
        while True:
            url = f"{self.server.socket_url}/conversations/{self.id}/events?after={len(self.entries)}"
            with contextlib.suppress(OSError, ConnectionClosed):
                async with connect(url, additional_headers=AUTHORIZED, open_timeout=60, proxy=None) as socket:
                    async for text in socket:
                        self.entries.append(json.loads(text))
            self.server = other
            await asyncio.sleep(0.2)

    def calls(self) -> tuple[set[str], set[str]]:
        """Returns the texts of the commands that the model requested, and of those that have succeeded."""
        requested, succeeded = {}, set()
        for entry in self.entries:
            event = entry["event"]
            for call in event.get("calls", ()):
                if command := call["action"].get("command"):
                    requested[call["id"]] = command.split()[1]
            if event["kind"] == "tool_result" and event["observation"].get("exit_code") == 0:
                succeeded.add(requested[event["call_id"]])
        return set(requested.values()), succeeded

    @property
    def lost_entries(self) -> int:
        seqs: set[int] = {entry["seq"] for entry in self.entries}
        return max(seqs) + 1 - len(seqs)

    @property
    def doubled_entries(self) -> int:
        messages = Counter(
            entry["event"]["text"] for entry in self.entries if entry["event"].get("source") == "comment"
        )
        return len(self.entries) - len({entry["seq"] for entry in self.entries}) + messages.total() - 1


@dataclass
class Trial:
    """What is wrong at the end."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """From the kill until everything had ended."""

    def compare(self, name: str, tally: str, requested: set[str], succeeded: set[str]) -> None:
        """Compares what the commands have written with the log."""
        written = Counter(tally.split())
        self.doubled += [f"{name}: {text}" for text, times in written.items() if times > 1]
        self.lost += [f"{name}: {text}" for text in succeeded - set(written)]
        self.doubled += [f"{name}: {text} was not requested" for text in set(written) - requested]


async def run_trial() -> Trial:
    """Runs everything, and kills a server and a worker."""
    trial = Trial()
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pwc-", dir="/tmp")))
        (directory / "tally").touch()
        github = await stack.enter_async_context(FakeGitHub())
        files = {"calc.py": CODE, "test_calc.py": TESTS, ".github/patchwright.toml": CONFIG}
        repo = github.create_repository("acme/calc", files, permissions={"maintainer": "write"})
        redis = await stack.enter_async_context(run_embedded_redis(directory))
        (directory / "key").write_text("a-key-that-both-servers-share-0123456789")
        (directory / "key").chmod(0o600)
        shared = {"REDIS_URL": redis, "PATCHWRIGHT_CREDENTIALS_KEY": f"file:{directory / 'key'}"}
        model = RecordedModel(make_turns(str(directory / "tally")), key="sk-benchmark", delay=0.5)
        environment = worker_environment(github, repo, directory, "local") | shared
        environment["PATCHWRIGHT_MODEL_BASE_URL"] = (await stack.enter_async_context(model)).base_url
        workers = [
            await stack.enter_async_context(
                working(environment | {"PATCHWRIGHT_DATA": str(directory / f"worker-{number}")})
            )
            for number in range(WORKERS)
        ]
        killed, other = [
            await stack.enter_async_context(serve(directory / name, redis, shared)) for name in ("one", "two")
        ]
        talking = await stack.enter_async_context(RecordedModel((*[STEP] * STEPS, DONE), key=KEY))
        client = await stack.enter_async_context(other.client())
        async with killed.client() as first:
            everything = await asyncio.gather(
                *(
                    _converse(
                        client if number % 2 else first, other if number % 2 else killed, talking, number
                    )
                    for number in range(CONVERSATIONS)
                )
            )
        group = await stack.enter_async_context(asyncio.TaskGroup())
        watching = [group.create_task(conversation.follow(other)) for conversation in everything]
        issues = [
            github.create_issue(repo, title=f"add(2, {number}) is wrong", body="", by="reporter")
            for number in range(JOBS)
        ]
        for issue in issues:
            job = {"repository": "acme/calc", "number": issue.number, "id": f"job-{issue.number}"}
            await post(client, "/jobs", job)
        await _wait_until_all_work(client, everything, len(issues))
        killed.process.kill()
        workers[0].kill()
        started_at = time.monotonic()
        await _wait_until_all_ended(client, everything, trial)
        trial.seconds = time.monotonic() - started_at
        await asyncio.sleep(2)  # until the watchers have the last entries
        for task in watching:
            task.cancel()
        await _compare(client, everything, trial)
        trial.compare(
            "jobs", (directory / "tally").read_text(), set((directory / "tally").read_text().split()), set()
        )
        branches = Counter(pull.head.ref for pull in repo.pulls)
        if len(branches) != JOBS or branches.total() != JOBS or len(repo.branches) != JOBS + 1:
            (trial.lost if branches.total() < JOBS else trial.doubled).append(f"pull requests: {branches}")
        for issue in issues:
            comments = sum("<!-- patchwright:" in one.body for one in repo.comments(issue.number))
            if comments != 1:
                (trial.doubled if comments else trial.lost).append(
                    f"issue {issue.number}: {comments} comments"
                )
    return trial


async def _converse(client: httpx.AsyncClient, server: Server, model: RecordedModel, number: int) -> Followed:
    workspace = (await post(client, "/workspaces", {}))["id"]
    id = f"c-{number}"
    await post(client, "/conversations", {"id": id, "workspace": workspace, "agent": agent(model)})
    await post(client, f"/conversations/{id}/messages", {"text": f"Write four lines, {number}."})
    await post(client, f"/conversations/{id}/run")
    return Followed(id, workspace, server)


async def _wait_until_all_work(client: httpx.AsyncClient, everything: list[Followed], jobs: int) -> None:
    async with asyncio.timeout(MOST_SECONDS):
        while True:
            states = [await _get(client, f"/jobs/job-{number + 1}") for number in range(jobs)]
            if all(state["state"] == "running" for state in states) and all(
                one.entries for one in everything
            ):
                return
            if any(state["state"] == "completed" for state in states):
                raise RuntimeError("a job has ended before all were at work")
            await asyncio.sleep(0.2)


async def _wait_until_all_ended(client: httpx.AsyncClient, everything: list[Followed], trial: Trial) -> None:
    """Waits. What has not ended in time is lost."""
    try:
        async with asyncio.timeout(MOST_SECONDS):
            waiting = {f"/conversations/{one.id}" for one in everything}
            waiting |= {f"/jobs/job-{number + 1}" for number in range(JOBS)}
            while waiting:
                for path in list(waiting):
                    state = await _get(client, path)
                    if "finished" in state.get("status", "") or state.get("state") == "completed":
                        waiting.remove(path)
                await asyncio.sleep(1)
    except TimeoutError:
        trial.lost += [f"{path} has not ended" for path in waiting]


async def _compare(client: httpx.AsyncClient, everything: list[Followed], trial: Trial) -> None:
    for one in everything:
        log = (await _get(client, f"/conversations/{one.id}/events"))["entries"]
        trial.lost += [f"{one.id}: {one.lost_entries} entries"] * (one.lost_entries > 0)
        trial.lost += [f"{one.id}: {len(log)} entries, seen {len(one.entries)}"] * (
            len(log) > len(one.entries)
        )
        trial.doubled += [f"{one.id}: {one.doubled_entries} entries"] * (one.doubled_entries > 0)
        tally = await client.get(f"/workspaces/{one.workspace}/files", params={"path": "tally"})
        trial.compare(one.id, tally.text, *one.calls())


async def _get(client: httpx.AsyncClient, path: str) -> dict[str, Any]:
    response = await client.get(path)
    response.raise_for_status()
    state: dict[str, Any] = response.json()
    return state


def measure() -> list[Result]:
    """Returns how much was lost and doubled, and the seconds until all had ended."""
    trial = asyncio.run(run_trial())
    for line in (*trial.lost, *trial.doubled):
        print(line, file=sys.stderr)
    return [
        Result(name="conversation_kills_lost", value=len(trial.lost), unit="", floor=None, target=0),
        Result(name="conversation_kills_doubled", value=len(trial.doubled), unit="", floor=None, target=0),
        Result(
            name="conversation_kills_ended_after",
            value=round(trial.seconds, 1),
            unit="s",
            floor=None,
            target=None,
        ),
    ]


if __name__ == "__main__":
    report(measure())
