"""Runs the repository's tests once at the base commit while the agent works. Caches the results for later
runs.
"""

import asyncio
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from patchwright.resolver.domain import TestRun
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.proof.run_comparison import FAILED_STATUSES
from patchwright.resolver.suites.execution import run_tests, run_tests_with_report
from patchwright.resolver.suites.suite import Suite
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.runtime.sandbox import Sandboxes

logger = logging.getLogger(__name__)

T = TypeVar("T")

CACHE_FORMAT = 2  # increase this when baseline runs or their format change, so that older entries are ignored
MAX_ENTRIES = 200  # maximum number of cached baselines on disk
MAX_ENTRY_BYTES = 30_000_000  # maximum bytes of one entry


class CachedBaseline(FrozenModel):
    """A file in the baseline cache."""

    key: str
    run: TestRun
    read_files: tuple[str, ...] = ()
    """The files of the repository that the run read."""


class BaselineCache:
    """A cache of baseline runs, in a directory that several processes share. Damaged entries are ignored."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def get(self, key: str) -> CachedBaseline | None:
        return await asyncio.to_thread(self._read, key)

    async def put(self, entry: CachedBaseline) -> None:
        try:
            await asyncio.to_thread(self._write, entry)
        except OSError as exc:  # a full disk is no error: the next run must then only repeat the tests
            logger.warning("baseline not cached", extra={"error": str(exc)})

    def _read(self, key: str) -> CachedBaseline | None:
        path = self._path(key)
        try:
            if path.stat().st_size > MAX_ENTRY_BYTES:
                return None
            entry = CachedBaseline.model_validate_json(path.read_bytes())
            os.utime(path)  # so that `_evict` keeps the most recently used entries
        except (OSError, ValidationError):
            return None
        return entry if entry.key == key else None

    def _write(self, entry: CachedBaseline) -> None:
        content = entry.model_dump_json().encode()
        if len(content) > MAX_ENTRY_BYTES:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="new-", dir=self._directory)
        try:
            with open(handle, "wb") as file:
                file.write(content)
            os.replace(name, self._path(entry.key))
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._evict()

    def _evict(self) -> None:
        """Deletes all but the MAX_ENTRIES most recently used entries, and temporary files older than an
        hour.
        """
        ages: list[tuple[float, Path]] = []
        for path in self._directory.iterdir():
            try:
                ages.append((path.stat().st_mtime, path))
            except FileNotFoundError:  # another process deleted the entry
                continue
        newest = max((age for age, _ in ages), default=0.0)
        entries = sorted((pair for pair in ages if pair[1].suffix == ".json"), reverse=True)
        abandoned = [path for age, path in ages if path.suffix != ".json" and age < newest - 3600]
        for path in (*abandoned, *(path for _, path in entries[MAX_ENTRIES:])):
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}.json"


class BaselineRuns:
    """Runs each suite at the base commit at most once. When the context ends, unfinished runs are
    canceled.
    """

    def __init__(
        self,
        workspace: Workspace,
        sandboxes: Sandboxes,
        name: str,
        timeout: int,
        cache: BaselineCache | None = None,
    ) -> None:
        """Prepares the test runs without starting one.

        `name` is the name of the agent's run. `timeout` is the time limit for one test run, in seconds. If
        `cache` is None, results are not stored.
        """
        self._workspace = workspace
        self._sandboxes = sandboxes
        self._name = name
        self._timeout = timeout
        self._cache = cache
        self._tasks: dict[Suite, asyncio.Task[TestRun]] = {}
        self._read_files: dict[Suite, frozenset[str]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def start(self, suite: Suite) -> asyncio.Task[TestRun]:
        """Returns the task of the suite's baseline run. Starts the run if it has not been started before.

        The task raises VerificationUnavailable if the sandbox failed.
        """
        if suite not in self._tasks:
            role = "base" if not self._tasks else f"base-{len(self._tasks) + 1}"
            self._tasks[suite] = asyncio.create_task(self._load_or_run(suite, f"{self._name}-{role}"))
        return self._tasks[suite]

    async def get_read_files(self, suite: Suite) -> frozenset[str]:
        """Returns the files that the suite's baseline run read. Returns no files if they are unknown."""
        await self.start(suite)
        return self._read_files.get(suite, frozenset())

    def is_done(self, suite: Suite) -> bool:
        """Returns True if the result of the suite's baseline run is available."""
        return suite in self._tasks and self._tasks[suite].done()

    async def _load_or_run(self, suite: Suite, name: str) -> TestRun:
        key = await self._cache_key(suite)
        if key and self._cache and (cached := await self._cache.get(key)):
            self._read_files[suite] = frozenset(cached.read_files)
            return cached.run
        run, report = await run_tests_with_report(
            self._workspace, None, suite, self._sandboxes, name, self._timeout, ()
        )
        self._read_files[suite] = frozenset(report.read_files)
        run = await self._mark_flaky(run, suite, name)
        if key and self._cache and not run.problem:
            await self._cache.put(CachedBaseline(key=key, run=run, read_files=report.read_files))
        return run

    async def _mark_flaky(self, run: TestRun, suite: Suite, name: str) -> TestRun:
        """Marks the flaky tests of the run and returns the run. If tests failed and cannot be rerun one by
        one, the whole suite runs again to find the flaky tests.
        """
        if suite.can_select_tests or run.problem or (run.exit_code == 0 and not run.failed_tests):
            return run
        rerun = await run_tests(self._workspace, None, suite, self._sandboxes, f"{name}-again", self._timeout)
        if rerun.problem:
            return run
        if not run.results:
            return run.model_copy(update={"flaky": (suite.command,)} if rerun.exit_code == 0 else {})
        flaky_tests = (
            test
            for test, result in run.results.items()
            if (result in FAILED_STATUSES) != (rerun.results.get(test) in FAILED_STATUSES)
        )
        return run.model_copy(update={"flaky": tuple(sorted(flaky_tests))})

    async def _cache_key(self, suite: Suite) -> str | None:
        """Returns a digest of everything that determines the baseline's results. Returns None if the contents
        of the sandbox are unknown.
        """
        content_digest = await self._sandboxes.content_digest()
        if content_digest is None:
            return None
        parts = [
            CACHE_FORMAT,
            self._workspace.base,
            content_digest,
            suite.model_dump(mode="json"),
            self._timeout,
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@asynccontextmanager
async def run_alongside(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Runs a coroutine during an `async with` block, and cancels the coroutine when the block ends."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
