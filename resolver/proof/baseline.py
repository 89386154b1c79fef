"""What the repository's own tests show at base: run once while the agent works, and remembered for the next run."""

import asyncio
import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from resolver.domain import SuiteRun
from resolver.suites.run import run_suite
from resolver.suites.suite import Suite
from resolver.verdict import BAD
from resolver.workspace import Workspace
from runtime.frozen import Frozen
from runtime.sandbox import Sandboxes

logger = logging.getLogger(__name__)

FORMAT = 1  # raised when a run at base is made or read otherwise, so that older ones are not taken
KEPT = 200  # baselines on disk
LARGEST = 30_000_000  # bytes of one


class Remembered(Frozen):
    """A file in the cache of baselines."""

    key: str
    run: SuiteRun


class Baselines:
    """Runs at base, kept in a directory that several processes share; a damaged entry is as good as none."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def recall(self, key: str) -> SuiteRun | None:
        return await asyncio.to_thread(self._recall, key)

    async def keep(self, key: str, run: SuiteRun) -> None:
        try:
            await asyncio.to_thread(self._keep, key, run)
        except OSError as exc:  # a full disk costs the next run its head start, not this one its proof
            logger.warning("baseline not kept", extra={"error": str(exc)})

    def _recall(self, key: str) -> SuiteRun | None:
        path = self._path(key)
        try:
            if path.stat().st_size > LARGEST:
                return None
            found = Remembered.model_validate_json(path.read_bytes())
            os.utime(path)  # the least recently used goes first
        except (OSError, ValidationError):
            return None
        return found.run if found.key == key else None

    def _keep(self, key: str, run: SuiteRun) -> None:
        content = Remembered(key=key, run=run).model_dump_json().encode()
        if len(content) > LARGEST:
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="new-", dir=self._directory)
        try:
            with open(handle, "wb") as file:
                file.write(content)
            os.replace(name, self._path(key))
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._tidy()

    def _tidy(self) -> None:
        """Keep the KEPT entries that were used last, and nothing that a killed process began an hour ago."""
        ages: list[tuple[float, Path]] = []
        for path in self._directory.iterdir():
            try:
                ages.append((path.stat().st_mtime, path))
            except FileNotFoundError:  # another process tidies too
                continue
        newest = max((age for age, _ in ages), default=0.0)
        entries = sorted((pair for pair in ages if pair[1].suffix == ".json"), reverse=True)
        begun = [path for age, path in ages if path.suffix != ".json" and age < newest - 3600]
        for path in (*begun, *(path for _, path in entries[KEPT:])):
            path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}.json"


class Bases:
    """The suites at base, each run once at most; what is still running when the context ends is given up."""

    def __init__(
        self,
        workspace: Workspace,
        sandboxes: Sandboxes,
        name: str,
        seconds: int,
        remembered: Baselines | None = None,
    ) -> None:
        """`name` is that of the run, `seconds` the limit of one test run; not `remembered`: nothing is kept."""
        self._workspace = workspace
        self._sandboxes = sandboxes
        self._name = name
        self._seconds = seconds
        self._remembered = remembered
        self._runs: dict[Suite, asyncio.Task[SuiteRun]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._runs.values():
            task.cancel()
        await asyncio.gather(*self._runs.values(), return_exceptions=True)

    def begin(self, suite: Suite) -> asyncio.Task[SuiteRun]:
        """The suite's run at base, under way or done. It raises ProofUnavailable when the machine failed."""
        if suite not in self._runs:
            role = "base" if not self._runs else f"base-{len(self._runs) + 1}"
            self._runs[suite] = asyncio.create_task(self._of(suite, f"{self._name}-{role}"))
        return self._runs[suite]

    def is_known(self, suite: Suite) -> bool:
        """Whether what the suite shows at base can be had without waiting."""
        return suite in self._runs and self._runs[suite].done()

    async def _of(self, suite: Suite, name: str) -> SuiteRun:
        key = await self._key(suite)
        if key and self._remembered and (known := await self._remembered.recall(key)):
            return known
        run = await run_suite(self._workspace, None, suite, self._sandboxes, name, self._seconds)
        run = await self._without_flaky(run, suite, name)
        if key and self._remembered and not run.problem:
            await self._remembered.keep(key, run)
        return run

    async def _without_flaky(self, run: SuiteRun, suite: Suite, name: str) -> SuiteRun:
        """The run with those tests named that fail only sometimes, where they cannot be run again alone later."""
        if suite.selects or run.problem or (run.exit_code == 0 and not run.failing):
            return run
        again = await run_suite(self._workspace, None, suite, self._sandboxes, f"{name}-again", self._seconds)
        if again.problem:
            return run
        if not run.results:
            return run.model_copy(update={"flaky": (suite.command,)} if again.exit_code == 0 else {})
        differ = (
            test
            for test, result in run.results.items()
            if (result in BAD) != (again.results.get(test) in BAD)
        )
        return run.model_copy(update={"flaky": tuple(sorted(differ))})

    async def _key(self, suite: Suite) -> str | None:
        """Names all that the run at base depends on; None where what a sandbox begins with is not known."""
        contents = await self._sandboxes.contents()
        if contents is None:
            return None
        parts = [FORMAT, self._workspace.base, contents, suite.model_dump(mode="json"), self._seconds]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
