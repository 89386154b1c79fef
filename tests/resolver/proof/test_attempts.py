"""Of several attempts, the one whose tests have the best results is published."""

from pathlib import Path

import pytest

from patchwright.resolver.dependencies import RunDependencies
from patchwright.resolver.domain import Patch, RunId, TestRun, TestStatus, Verdict, VerdictKind
from patchwright.resolver.events import AgentStopped, Checkpoint, Message, VerificationCompleted
from patchwright.resolver.proof.repair_loop import verify_or_continue
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.resolver.verification import VerdictCallback
from patchwright.resolver.workspaces import WorkspaceFactory
from patchwright.runtime.local_sandboxes import LocalSandboxes
from tests.resolver.scripted_model import ScriptedModel

SIGNS: dict[str, TestStatus] = {".": "passed", "F": "failed"}


def make_verdict(kind: VerdictKind, signs: str) -> Verdict:
    """A verdict after a test run with these results; an empty text means that there was no run."""
    results = {f"t.py::{number}": SIGNS[sign] for number, sign in enumerate(signs)}
    run = TestRun(command="c", results=results, exit_code=0, seconds=1.0, output="")
    return Verdict(kind=kind, after=run if signs else None)


def make_patch(text: str) -> Patch:
    return Patch(base_sha="0" * 40, diff=text.encode())


@pytest.mark.parametrize(
    ("first", "second", "published"),
    [
        (("unproven", ".."), ("regressed", "..."), "first"),
        (("regressed", "..."), ("unproven", "."), "second"),
        (("unproven", "..."), ("unproven", ".."), "first"),
        (("unproven", ".."), ("unproven", "..."), "second"),
        (("unproven", "..F"), ("unproven", "..FF"), "first"),
        (("unproven", "..FF"), ("unproven", "..F"), "second"),
        (("unproven", ".."), ("unproven", ".."), "second"),
        (("unproven", "."), ("unproven", ""), "first"),
        (("untested", ""), ("empty", ""), "first"),
    ],
)
async def test_the_attempt_with_the_best_tests_is_published(
    tmp_path: Path, first: tuple[VerdictKind, str], second: tuple[VerdictKind, str], published: str
) -> None:
    deps = RunDependencies(
        Settings(data=tmp_path, max_attempts=2, max_repairs=0), ScriptedModel([]), LocalSandboxes(tmp_path, {}),
        WorkspaceFactory(tmp_path), FileLogStore(tmp_path), Secrets(),
    )  # fmt: skip
    stopped = AgentStopped(reason="finished", detail="Done.")
    verdicts = {"first": make_verdict(*first), "second": make_verdict(*second)}

    async def start_over() -> bool:
        await log.append(Checkpoint(patch=make_patch("")))
        return True

    async def finish(name: str) -> Verdict | None:
        async def verify(callback: VerdictCallback) -> Verdict:
            return verdicts[name]

        await log.append(Checkpoint(patch=make_patch(name)))
        return await verify_or_continue(log, deps, stopped, make_patch(name), verify, start_over)

    async with deps.logs.open(RunId("run")) as log:
        await log.append(Message(text="Fix it.", source="initial_prompt"))
        assert await finish("first") is None
        assert await finish("second") == verdicts[published]
        assert log.trajectory.verdict == verdicts[published]
        patches = [event.patch for event in log.trajectory if isinstance(event, Checkpoint)]
        assert patches[-1] == make_patch(published)
        assert sum(isinstance(event, VerificationCompleted) for event in log.trajectory) == 2 + (
            published == "first"
        )


async def test_a_broken_patch_comes_back_until_the_repairs_are_used(tmp_path: Path) -> None:
    deps = RunDependencies(
        Settings(data=tmp_path, max_attempts=3, max_repairs=1), ScriptedModel([]), LocalSandboxes(tmp_path, {}),
        WorkspaceFactory(tmp_path), FileLogStore(tmp_path), Secrets(),
    )  # fmt: skip
    stopped = AgentStopped(reason="finished", detail="Done.")
    worst, best = make_verdict("regressed", "."), make_verdict("unproven", "..")
    partial = worst.model_copy(update={"partial": True})
    stops: list[bool] = []

    async def start_over() -> bool:
        await log.append(Checkpoint(patch=make_patch("")))
        return True

    async def finish(verdict: Verdict, name: str) -> Verdict | None:
        async def verify(callback: VerdictCallback) -> Verdict:
            stops.append(await callback(partial))
            return partial if stops[-1] else verdict

        await log.append(Checkpoint(patch=make_patch(name)))
        return await verify_or_continue(log, deps, stopped, make_patch(name), verify, start_over)

    def messages() -> list[str]:
        return [
            each.text
            for each in log.trajectory
            if isinstance(each, Message) and each.source == "verification"
        ]

    async with deps.logs.open(RunId("run")) as log:
        await log.append(Message(text="Fix it.", source="initial_prompt"))
        # The affected tests are enough to send the work back once, and once more in each attempt.
        for number, verdict in enumerate((worst, best, make_verdict("unproven", "."))):
            assert await finish(verdict, "a") is None
            assert sum(isinstance(each, VerificationCompleted) for each in log.trajectory) == 3 * number + 1
            final = await finish(verdict, f"b{number}")
            assert (final is None) == (number < 2)
        assert stops == [True, False] * 3
        assert final == best and log.trajectory.verdict == best
        assert [each.patch for each in log.trajectory if isinstance(each, Checkpoint)][-1] == make_patch("b1")
    assert [text for text in messages() if text.startswith("This was attempt")] == messages()[1::2]
    assert messages()[1].startswith("This was attempt 1 of 3") and messages()[3].startswith(
        "This was attempt 2 of 3"
    )
