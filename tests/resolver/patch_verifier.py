"""Verifies patches to a small repository, for the tests of verification."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from patchwright.resolver.domain import Patch, TestRun, Verdict
from patchwright.resolver.git.workspaces import Workspace, WorkspaceFactory
from patchwright.resolver.proof.baseline import BaselineRuns
from patchwright.resolver.proof.verification import VerdictCallback, require_all_tests, verify_patch
from patchwright.resolver.suites.execution import TestSetup, run_tests
from patchwright.resolver.suites.suite import Suite, Suites
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from tests.resolver.git_repository import Repository, make_patch

BUG = "def add(a, b):\n    return a - b\n\n\ndef one():\n    return 1\n"
FIXED = BUG.replace("a - b", "a + b")
TESTS = "from calc import add, one\n\n\ndef test_one():\n    assert one() == 1\n"
FAILING = TESTS + "\n\ndef test_add():\n    assert add(1, 2) == 3\n"

PYTEST = Suite(command="python3 -m pytest", runner="pytest", command_reason="")


class PatchVerifier:
    """A repository whose patches are verified."""

    def __init__(self, workspace: Workspace, sandboxes: LocalSandboxes) -> None:
        self.workspace = workspace
        self.sandboxes = sandboxes

    async def run(self, suite: Suite = PYTEST, patch: Patch | None = None, seconds: int = 60) -> TestRun:
        return await run_tests(self.workspace, patch, suite, self.sandboxes, "run", seconds)

    async def verdict(
        self,
        files: dict[str, str | None],
        suite: Suite | None = PYTEST,
        then: str = "true",
        seconds: int = 60,
    ) -> Verdict:
        """Verifies the patch that writes these files (None: deletes one)."""
        return await self.judged(await self.patch(files, then), suite, seconds)

    async def patch(self, files: dict[str, str | None], then: str = "true") -> Patch:
        """Returns the patch that writes these files (None: deletes one) and runs a command."""
        return await make_patch(self.workspace, self.sandboxes, files, then)

    async def judged(
        self,
        patch: Patch,
        suite: Suite | None = PYTEST,
        seconds: int = 60,
        listener: VerdictCallback = require_all_tests,
    ) -> Verdict:
        suites = Suites(all=(suite,), primary=suite) if suite else Suites()
        async with BaselineRuns(self.workspace, self.sandboxes, "proof", seconds) as bases:
            if suite:
                await bases.start(suite)
            setup = TestSetup(suites, self.sandboxes, "proof", seconds)
            return await verify_patch(self.workspace, patch, setup, bases, listener)


VerifierFactory = Callable[[Mapping[str, str | bytes]], AbstractAsyncContextManager[PatchVerifier]]
"""Commits files and opens a verifier for patches to them."""


def make_verifier_factory(
    repository: Repository, workspaces: WorkspaceFactory, sandboxes: LocalSandboxes
) -> VerifierFactory:
    @asynccontextmanager
    async def open_verifier(files: Mapping[str, str | bytes]) -> AsyncIterator[PatchVerifier]:
        repository.commit(dict(files))
        async with workspaces.local(repository.path) as workspace:
            yield PatchVerifier(workspace, sandboxes)

    return open_verifier
