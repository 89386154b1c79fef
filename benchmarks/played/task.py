"""A played task, and its replay: the recorded replies go through `patchwright resolve` on the old release."""

import asyncio
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from benchmarks.played.billing import Bill, bill, format_reply
from benchmarks.real_fixes.trial import FIX_KINDS, commit, resolve
from patchwright.demo.recorded_model import RecordedModel, RecordedTurn
from patchwright.evaluation.package_instances import select_pairs
from patchwright.evaluation.release_pairs import Registries

TASKS = Path(__file__).parent / "tasks"
PEER = "mini-swe-agent 2.4.6"


class PeerFigures(BaseModel):
    """What the same player needed with the peer. The peer's requests contain the package, so they are not kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    requests: int
    fresh: int
    cached: int
    written: int

    @property
    def bill(self) -> Bill:
        return Bill(self.requests, self.fresh, self.cached, self.written, changed_bytes=0)


class Task(BaseModel):
    """One bug of a package: the text of the issue, and the replies of the person who fixed it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pair: str
    """Registry and name, such as `pypi:flake8`. `evaluation/pairs.json` has the releases and their hashes."""
    issue: str
    replies: tuple[RecordedTurn, ...]
    as_played: tuple[RecordedTurn, ...] = ()
    """The replies of the play itself, if fewer are needed now. `played.md` says why."""
    peer: PeerFigures


class Replay(BaseModel):
    """What a replayed task cost, and how its verdict turned out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    pair: str
    verdict: str
    bill: Bill
    seconds: float
    """Of the whole run, with the repository's setup and its tests. Nothing waits for a model."""

    @property
    def is_solved(self) -> bool:
        return self.verdict in FIX_KINDS


def load_tasks(names: list[str]) -> list[Task]:
    """Returns the tasks with these pairs; without a name, all."""
    tasks = [Task.model_validate_json(path.read_bytes()) for path in sorted(TASKS.glob("*.json"))]
    return [task for task in tasks if not names or task.pair in names or task.pair.partition(":")[2] in names]


async def replay(task: Task, data: Path) -> Replay:
    """Replays one task. `data` is the data directory, in which the repository's setup is kept for the next replay."""
    (pair,) = select_pairs([task.pair])
    registries = Registries.from_environment(os.environ)
    old = await asyncio.to_thread(registries.download, pair.registry, pair.name, pair.old)
    requests: list[dict[str, Any]] = []
    replies: list[str] = []

    def on_request(turn: int, body: dict[str, Any]) -> None:
        requests.append(body)
        if turn < len(task.replies):
            reply = task.replies[turn]
            replies.append(format_reply(reply.thought, [(call.name, call.text) for call in reply.calls]))

    with tempfile.TemporaryDirectory() as name:
        tree, issue = Path(name) / pair.name, Path(name) / "issue.md"
        await asyncio.to_thread(commit, tree, old, pair)
        issue.write_text(task.issue)
        started_at = time.monotonic()
        async with RecordedModel(task.replies, on_request=on_request) as model:
            outcome = await resolve(tree, issue, data, model.base_url, {})
        seconds = round(time.monotonic() - started_at, 1)
        await asyncio.to_thread(shutil.rmtree, tree, ignore_errors=True)
    verdict = str(outcome.get("verdict") or json.dumps(outcome)[-500:])
    return Replay(pair=task.pair, verdict=verdict, bill=bill(requests, replies), seconds=seconds)
