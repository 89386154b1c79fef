"""A repository whose patches are to be judged, for the tests of the proof."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from resolver.domain import Patch, SuiteRun, Verdict
from resolver.proof.baseline import Bases
from resolver.suites.run import run_suite
from resolver.suites.suite import Suite, Suites
from resolver.validate import Heard, nobody, prove
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
        return await self.judged(await self.patch(files, then), suite, seconds)

    async def patch(self, files: dict[str, str | None], then: str = "true") -> Patch:
        """The one that writes these files (None: deletes one) and runs a command."""
        return await changed(self.workspace, self.sandboxes, files, then)

    async def judged(
        self, patch: Patch, suite: Suite | None = PYTEST, seconds: int = 60, heard: Heard = nobody
    ) -> Verdict:
        suites = Suites(all=(suite,), likely=suite) if suite else Suites()
        async with Bases(self.workspace, self.sandboxes, "proof", seconds) as bases:
            if suite:
                await bases.begin(suite)
            return await prove(self.workspace, patch, suites, self.sandboxes, "proof", seconds, bases, heard)


Proven = Callable[[Mapping[str, str | bytes]], AbstractAsyncContextManager[Proof]]
"""Commits files; in its context is the proof of patches to them."""


def proving(repository: Repository, workspaces: Workspaces, sandboxes: LocalSandboxes) -> Proven:
    @asynccontextmanager
    async def proven(files: Mapping[str, str | bytes]) -> AsyncIterator[Proof]:
        repository.commit(dict(files))
        async with workspaces.local(repository.path) as workspace:
            yield Proof(workspace, sandboxes)

    return proven
