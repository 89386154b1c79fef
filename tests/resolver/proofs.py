"""A repository whose patches are to be judged, for the tests of the proof."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from resolver.domain import Patch, SuiteRun, Verdict
from resolver.suites.run import run_suite
from resolver.suites.suite import Suite
from resolver.validate import prove
from resolver.workspace import Workspace, Workspaces
from runtime.local import LocalSandboxes
from tests.resolver.repositories import Repository, changed

BUG = "def add(a, b):\n    return a - b\n\n\ndef one():\n    return 1\n"
MENDED = BUG.replace("a - b", "a + b")
TESTS = "from calc import add, one\n\n\ndef test_one():\n    assert one() == 1\n"
FAILING = TESTS + "\n\ndef test_add():\n    assert add(1, 2) == 3\n"

PYTEST = Suite(command="python3 -m pytest", report="pytest", why="")


class Proof:
    """A repository whose patches are to be judged."""

    def __init__(self, workspace: Workspace, sandboxes: LocalSandboxes) -> None:
        self.workspace = workspace
        self.sandboxes = sandboxes

    async def run(self, suite: Suite = PYTEST, patch: Patch | None = None, seconds: int = 60) -> SuiteRun:
        return await run_suite(self.workspace, patch, suite, self.sandboxes, "run", seconds)

    async def verdict(
        self,
        files: dict[str, str | None],
        suite: Suite | None = PYTEST,
        then: str = "true",
        seconds: int = 60,
    ) -> Verdict:
        """On the patch that writes these files (None: deletes one)."""
        patch = await changed(self.workspace, self.sandboxes, files, then)
        before = suite and asyncio.create_task(self.run(suite, seconds=seconds))
        return await prove(self.workspace, patch, suite, self.sandboxes, "proof", seconds, before)


Proven = Callable[[Mapping[str, str | bytes]], AbstractAsyncContextManager[Proof]]
"""Commits files; in its context is the proof of patches to them."""


def proving(repository: Repository, workspaces: Workspaces, sandboxes: LocalSandboxes) -> Proven:
    @asynccontextmanager
    async def proven(files: Mapping[str, str | bytes]) -> AsyncIterator[Proof]:
        repository.commit(dict(files))
        async with workspaces.local(repository.path) as workspace:
            yield Proof(workspace, sandboxes)

    return proven
