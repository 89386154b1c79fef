"""Verifies finished work. If verification fails, the agent repairs the work or starts another attempt. The
number of repairs and attempts is limited.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import get_args

from patchwright.resolver import run_limits
from patchwright.resolver.domain import Issue, Patch, Verdict, VerdictKind
from patchwright.resolver.events import (
    AgentStopped,
    AuxiliaryModelCall,
    Checkpoint,
    Message,
    Trajectory,
    VerificationCompleted,
)
from patchwright.resolver.proof.diff_parser import parse_diff
from patchwright.resolver.proof.patch_review import review_patch
from patchwright.resolver.proof.verification import VerdictCallback
from patchwright.resolver.rendering.subjects import is_document
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.suites.file_classifier import is_test_related
from patchwright.resolver.tool_actions.control_actions import Finish

VERDICT_RANKS = get_args(VerdictKind)
"""Kinds of verdicts, from worst to best."""
PROVEN_KINDS: frozenset[VerdictKind] = frozenset({"conditional", "fixed"})
"""Kinds of verdicts for which tests show the fix, so that no further attempt starts."""


async def verify_or_continue(
    log: RunLog,
    deps: RunDependencies,
    stopped: AgentStopped,
    patch: Patch,
    verify: Callable[[VerdictCallback], Awaitable[Verdict]],
    start_over: Callable[[], Awaitable[bool]],
) -> Verdict | None:
    """Returns the final verdict, or None if the agent must continue. If the agent must continue, a message in
    the log says what to do.

    The affected tests run first. If these tests already show that the agent must repair the patch, the
    remaining tests are not run. `start_over` resets the work tree, and returns False if the reset failed.
    """
    rounds = RepairRounds.from_trajectory(log.trajectory)
    finished = stopped.reason == "finished"
    may_repair = finished and rounds.repairs < deps.settings.max_repairs

    async def on_partial_verdict(partial_verdict: Verdict) -> bool:
        await log.append(VerificationCompleted(verdict=partial_verdict))
        return may_repair and should_repair(partial_verdict)

    verdict = _find_repeated_verdict(log.trajectory) if finished else None
    if verdict is not None:
        await log.append(VerificationCompleted(verdict=verdict))
        return await _conclude(log, deps, rounds, verdict, start_over)
    verdict = await verify(on_partial_verdict)
    if may_repair and should_repair(verdict):
        if not verdict.partial:
            await log.append(VerificationCompleted(verdict=verdict))
        await log.append(
            Message(text=render("prompts/verification_failed.md.j2", verdict=verdict), source="verification")
        )
        return None
    verdict = await _with_review(verdict, log, deps, patch)
    await log.append(VerificationCompleted(verdict=verdict))
    if not finished:
        return await _restore_best_attempt(log, verdict)
    is_rejected = bool(verdict.review and not verdict.review.approved and verdict.kind != "fixed")
    if not rounds.reminders and (is_rejected or _should_remind(log, deps, rounds, verdict, patch)):
        await log.append(
            Message(text=render("prompts/unsettled_verdict.md.j2", verdict=verdict), source="verification")
        )
        return None
    return await _conclude(log, deps, rounds, verdict, start_over)


async def _conclude(
    log: RunLog,
    deps: RunDependencies,
    rounds: "RepairRounds",
    verdict: Verdict,
    start_over: Callable[[], Awaitable[bool]],
) -> Verdict | None:
    """Returns the verdict of the best attempt, or None if another attempt starts."""
    attempts = deps.settings.max_attempts
    if verdict.kind not in PROVEN_KINDS and rounds.attempts < attempts and await start_over():
        text = render(
            "prompts/another_attempt.md.j2", verdict=verdict, number=rounds.attempts, max_attempts=attempts
        )
        await log.append(Message(text=text, source="verification"))
        return None
    return await _restore_best_attempt(log, verdict)


def should_repair(verdict: Verdict) -> bool:
    """Returns True if the agent should repair the patch, because the patch broke a passing test or its own
    tests fail.
    """
    return verdict.kind == "regressed" or bool(verdict.patch_tests_failing)


def _should_remind(
    log: RunLog, deps: RunDependencies, rounds: "RepairRounds", verdict: Verdict, patch: Patch
) -> bool:
    """Returns True if the agent should be told once that its verdict is `unproven` or `conditional`.

    It is not told if it cannot do anything about it, or if another attempt or a limit follows anyway. On a pull
    request, it does what the reviewers ask, which often needs no test.
    """
    settings, started = deps.settings, log.trajectory.run_started
    if not settings.max_repairs or started is None or not isinstance(started.thread, Issue):
        return False
    if should_repair(verdict):  # The repairs are used up.
        return False
    steps_left = settings.max_steps - log.trajectory.usage_since_resume().steps
    if steps_left < run_limits.NOTICE_STEPS or _is_over_limit(log, deps):
        return False
    if verdict.kind == "conditional":
        return not _has_explained_expectations(log.trajectory, verdict)
    is_last_attempt = rounds.attempts >= settings.max_attempts
    return verdict.kind == "unproven" and is_last_attempt and _can_add_evidence(verdict, patch)


def _has_explained_expectations(trajectory: Trajectory, verdict: Verdict) -> bool:
    """Returns True if all conditions are changed expectations, and the agent has told people about them."""
    actions = [call.action for reply in trajectory.replies() for call in reply.calls]
    finish = next((action for action in reversed(actions) if isinstance(action, Finish)), None)
    points = finish.to_check if finish else ()
    kinds = {condition.kind for condition in verdict.conditions}
    return kinds == {"changed_expectations"} and any(
        re.search(r"test|expect|assert", point, re.IGNORECASE) for point in points
    )


def _can_add_evidence(verdict: Verdict, patch: Patch) -> bool:
    """Returns True if the tests run here and report single tests, and if the patch changes code."""
    before, after = verdict.before, verdict.after
    if before is None or before.problem or after is None or after.problem or not after.passed_count:
        return False
    return any(
        not is_test_related(file.path) and not is_document(file.path) for file in parse_diff(patch.diff)
    )


@dataclass(frozen=True)
class RepairRounds:
    """Counts how often verification has returned the work to the agent since the last message from a person."""

    repairs: int = 0
    """Number of failed verifications in the current attempt."""
    reminders: int = 0
    """Number of times in the current attempt that the agent was told that its verdict is not settled: the fix is
    not proven, a person has to agree to conditions, or the review model rejected the patch.
    """
    attempts: int = 1
    """Number of attempts that were started."""

    @classmethod
    def from_trajectory(cls, trajectory: Trajectory) -> "RepairRounds":
        repairs = reminders = 0
        attempts = 1
        for verdict, _, was_reset in _reported_verdicts(trajectory):
            if was_reset:
                repairs, reminders, attempts = 0, 0, attempts + 1
            elif should_repair(verdict):
                repairs += 1
            else:
                reminders += 1
        return cls(repairs, reminders, attempts)


def _reported_verdicts(trajectory: Trajectory) -> list[tuple[Verdict, Patch | None, bool]]:
    """Returns each verdict that was reported to the agent since the last message from a person.

    Each item is a tuple of the verdict, the verified patch, and whether the work tree was reset to the base
    commit before the report.
    """
    verdicts: list[tuple[Verdict, Patch | None, bool]] = []
    patch: Patch | None = None
    last: tuple[Verdict, Patch | None] | None = None
    was_reset = False
    for event in trajectory:
        match event:
            case Message(source="initial_prompt" | "comment"):
                verdicts, last = [], None
            case Checkpoint():
                patch, was_reset = event.patch, last is not None
            case VerificationCompleted():
                last, was_reset = (event.verdict, patch), False
            case Message(source="verification") if last is not None:
                verdicts.append((*last, was_reset))
                last = None
            case _:
                continue
    return verdicts


def _find_repeated_verdict(trajectory: Trajectory) -> Verdict | None:
    """Returns the verdict that the agent was last told, if it has not changed its patch since. Returns None if
    the patch must be verified.
    """
    reported = _reported_verdicts(trajectory)
    if not reported:
        return None
    verdict, patch, was_reset = reported[-1]
    is_same = not was_reset and patch is not None and patch == trajectory.last_checkpoint()
    return verdict if is_same and not should_repair(verdict) else None


async def _with_review(verdict: Verdict, log: RunLog, deps: RunDependencies, patch: Patch) -> Verdict:
    settings, started = deps.settings, log.trajectory.run_started
    if settings.review_model is None or verdict.kind == "empty" or started is None:
        return verdict
    if _is_over_limit(log, deps):
        return verdict  # a review must not make the run exceed its limits
    review, usage = await review_patch(deps.models.review, started.thread, patch, verdict, deps.secrets)
    if usage is not None:
        await log.append(AuxiliaryModelCall(purpose="review", usage=usage))
    return verdict.model_copy(update={"review": review})


def _is_over_limit(log: RunLog, deps: RunDependencies) -> bool:
    """Returns True if the run has used up its tokens, money or time."""
    settings, usage = deps.settings, log.trajectory.usage_since_resume()
    has_no_tokens = settings.max_tokens is not None and usage.tokens >= settings.max_tokens
    return has_no_tokens or usage.usd >= settings.max_usd or usage.seconds >= settings.timeout


async def _restore_best_attempt(log: RunLog, verdict: Verdict) -> Verdict:
    """Returns the best verdict of all attempts.

    The last patch in the log is published. Therefore, if an earlier attempt was the best one, the patch of
    that attempt is logged again.
    """
    earlier = [
        (earlier_verdict, patch)
        for earlier_verdict, patch, was_reset in _reported_verdicts(log.trajectory)
        if was_reset
    ]
    if not earlier:
        return verdict
    best, patch = max(earlier, key=lambda each: _rank_verdict(each[0]))
    if patch is None or _rank_verdict(best) <= _rank_verdict(verdict):
        return verdict
    await log.append(Checkpoint(patch=patch))
    await log.append(VerificationCompleted(verdict=best))
    return best


def _rank_verdict(verdict: Verdict) -> tuple[int, int, int]:
    """Returns a sort key: the kind of verdict, then the numbers of passing and failing tests."""
    after = verdict.after
    return (
        VERDICT_RANKS.index(verdict.kind),
        after.passed_count if after else 0,
        -after.failed_count if after else 0,
    )
