"""Of several attempts, the one whose tests have the best results is published."""

from decimal import Decimal
from pathlib import Path

import pytest

from patchwright.resolver.domain import (
    Issue,
    Job,
    JobId,
    ModelReview,
    Patch,
    Repo,
    RunId,
    TestRun,
    TestStatus,
    User,
    Verdict,
    VerdictKind,
)
from patchwright.resolver.errors import ModelError
from patchwright.resolver.events import (
    AgentStopped,
    AuxiliaryModelCall,
    Checkpoint,
    Event,
    Message,
    ModelReply,
    ReplyUsage,
    RunStarted,
    VerificationCompleted,
)
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.llm.model import Reply
from patchwright.resolver.proof.repair_loop import verify_or_continue
from patchwright.resolver.proof.verification import VerdictCallback
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_log import FileLogStore
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.execution.local_sandboxes import LocalSandboxes
from tests.resolver.scripted_model import ScriptedModel, ScriptLine

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


def started() -> RunStarted:
    issue = Issue(
        number=7, title="add() subtracts", body="It should add.", author=User(login="r", id=1), trusted=False,
        open=True, url="u",
    )  # fmt: skip
    job = Job(id=JobId("j"), repo=Repo(owner="o", name="r"), number=7, requester=None)
    return RunStarted(
        job=job, thread=issue, base_sha="0" * 40, base_branch="main", source="s", model="m", sandbox="local"
    )


REVIEW_USAGE = ReplyUsage(model="reviewer", prompt_tokens=50, usd=Decimal("0.10"))


async def review_work(
    path: Path,
    script: list[ScriptLine],
    verdict: Verdict,
    used: ReplyUsage,
    *,
    times: int = 2,
    **changes: object,
) -> tuple[list[Verdict | None], list[Event], ScriptedModel]:
    """Finishes several times. Returns the results, the events after the start, and the review model."""
    model = ScriptedModel(script)
    settings = Settings(data=path, review_model="reviewer", max_attempts=1).model_copy(update=changes)
    deps = RunDependencies(
        settings, model, LocalSandboxes(path, {}), WorkspaceFactory(path), FileLogStore(path), Secrets()
    )
    stopped = AgentStopped(reason="finished", detail="Done.")

    async def verify(callback: VerdictCallback) -> Verdict:
        return verdict

    async def start_over() -> bool:
        await log.append(Checkpoint(patch=make_patch("")))
        return True

    async with deps.logs.open(RunId("run")) as log:
        for event in (started(), Message(text="Fix it.", source="initial_prompt")):
            await log.append(event)
        await log.append(ModelReply(thought="", calls=(), usage=used))
        size = len(list(log.trajectory))
        patch = make_patch("the diff")
        results = [
            await verify_or_continue(log, deps, stopped, patch, verify, start_over) for _ in range(times)
        ]
        return results, list(log.trajectory)[size:], model


async def test_a_patch_without_proof_comes_back_once_with_the_review(tmp_path: Path) -> None:
    rejection, verdict = (
        Reply(text="REJECT\nNo test.", tool_calls=(), usage=REVIEW_USAGE),
        make_verdict("unproven", "."),
    )
    results, events, model = await review_work(
        tmp_path, [rejection, rejection], verdict, ReplyUsage(model="m")
    )
    review = ModelReview(approved=False, reasons="No test.", model="reviewer")
    reviewed = verdict.model_copy(update={"review": review})
    assert results == [None, reviewed]
    call, completed = (
        AuxiliaryModelCall(purpose="review", usage=REVIEW_USAGE),
        VerificationCompleted(verdict=reviewed),
    )
    message = next(event for event in events if isinstance(event, Message))
    assert message.source == "verification" and "No test." in message.text
    assert events == [call, completed, message, call, completed]
    shown = str(model.requests[0])
    assert "add() subtracts" in shown and "It should add." in shown and "the diff" in shown


async def test_a_patch_whose_own_tests_fail_comes_back(tmp_path: Path) -> None:
    verdict = make_verdict("unproven", "F").model_copy(update={"patch_tests_failing": ("t.py::0",)})
    results, events, _ = await review_work(
        tmp_path, [], verdict, ReplyUsage(model="m"), review_model=None, max_repairs=1
    )
    assert results == [None, verdict]
    message = next(event for event in events if isinstance(event, Message))
    completed = VerificationCompleted(verdict=verdict)
    assert events == [completed, message, completed] and "t.py::0" in message.text


async def test_the_review_may_reject_once_in_each_attempt(tmp_path: Path) -> None:
    rejection = Reply(text="REJECT\nNo test.", tool_calls=(), usage=REVIEW_USAGE)
    results, events, _ = await review_work(
        tmp_path,
        [rejection] * 4,
        make_verdict("unproven", "."),
        ReplyUsage(model="m"),
        times=4,
        max_attempts=2,
    )
    assert [result is None for result in results] == [True, True, True, False]
    texts = [event.text for event in events if isinstance(event, Message)]
    assert [text.startswith("This was attempt 1 of 2") for text in texts] == [False, True, False]
    assert texts[0] == texts[2] and "No test." in texts[0]


@pytest.mark.parametrize("kind", ["fixed", "untested"])
async def test_a_patch_is_final_if_the_tests_prove_it_or_the_review_fails(
    tmp_path: Path, kind: VerdictKind
) -> None:
    verdict = make_verdict(kind, ".")
    line: ScriptLine = (
        Reply(text="REJECT\nNo test.", tool_calls=(), usage=REVIEW_USAGE)
        if kind == "fixed"
        else ModelError("The model is down.")
    )
    # A proven patch is not tried again, even if there may be another attempt.
    results, events, _ = await review_work(
        tmp_path, [line, line], verdict, ReplyUsage(model="m"), max_attempts=2 if kind == "fixed" else 1
    )
    review = ModelReview(approved=False, reasons="No test.", model="reviewer") if kind == "fixed" else None
    assert results == [verdict.model_copy(update={"review": review})] * 2
    assert not any(isinstance(event, Message) for event in events)
    # A review without a reply has no usage.
    assert sum(isinstance(event, AuxiliaryModelCall) for event in events) == (2 if kind == "fixed" else 0)


@pytest.mark.parametrize(
    ("kind", "changes", "used", "reviews"),
    [
        ("fixed", {}, ReplyUsage(model="m", usd=Decimal("1.80")), 2),
        ("fixed", {}, ReplyUsage(model="m", usd=Decimal("1.90")), 1),  # The first review costs the rest.
        ("fixed", {}, ReplyUsage(model="m", usd=Decimal("2.00")), 0),
        ("fixed", {"max_tokens": 1000}, ReplyUsage(model="m", prompt_tokens=900), 2),
        ("fixed", {"max_tokens": 1000}, ReplyUsage(model="m", prompt_tokens=950), 1),
        ("fixed", {"max_tokens": 1000}, ReplyUsage(model="m", prompt_tokens=1000), 0),
        ("fixed", {"timeout": 0}, ReplyUsage(model="m"), 0),
        ("fixed", {"review_model": None}, ReplyUsage(model="m"), 0),
        ("empty", {}, ReplyUsage(model="m"), 0),
    ],
)
async def test_no_review_exceeds_the_limits_of_the_run(
    tmp_path: Path, kind: VerdictKind, changes: dict[str, object], used: ReplyUsage, reviews: int
) -> None:
    approval = Reply(text="APPROVE", tool_calls=(), usage=REVIEW_USAGE)
    results, _, model = await review_work(tmp_path, [approval] * 2, make_verdict(kind, "."), used, **changes)
    assert len(model.requests) == reviews
    assert [result.review is not None for result in results if result] == [
        number < reviews for number in range(2)
    ]


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
