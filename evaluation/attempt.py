"""One attempt: the agent resolves the issue as the bot does, and the hidden tests judge its patch."""

import time
from dataclasses import dataclass
from pathlib import Path

from patchwright.evaluation.controls import ControlResult, check_instance
from patchwright.evaluation.hidden_tests import HiddenTests, Score, grade
from patchwright.evaluation.instances import Instance
from patchwright.evaluation.issue_images import IssueImages
from patchwright.evaluation.localization import list_viewed_files, rank_files
from patchwright.evaluation.results import AttemptResult, Stage
from patchwright.resolver.activity.failure import HiddenTestResult, classify_failure
from patchwright.resolver.domain import Issue, Job, Patch, RunId, Usage, Verdict
from patchwright.resolver.errors import LogError
from patchwright.resolver.events import AgentStopped, Trajectory
from patchwright.resolver.git.repository import Workspace
from patchwright.resolver.pipeline.resolve import resolve_local
from patchwright.resolver.preparation.attachments import fetch_attachments
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.security.patch_policy import build_patch_limits, filter_patch

WRITE_TESTS = (
    "Do not fix this. Only add a test to the repository's tests that fails because of the problem, and that passes "
    "as soon as the problem is fixed."
)
FILE_HINT = "These files may be relevant, best match first: {files}"


@dataclass(frozen=True)
class AttemptTask:
    """An attempt that has to be made."""

    instance: Instance
    model: str
    number: int
    """From 1."""
    gives_file_hints: bool = False
    writes_tests: bool = False
    """The agent only writes tests that show the bug, as in SWT-bench. They must pass with the reference fix."""

    @property
    def run(self) -> RunId:
        return self.instance.run_id(self.model, self.number)


@dataclass(frozen=True)
class _AgentResult:
    """What the agent left behind."""

    stopped: AgentStopped
    patch: Patch
    verdict: Verdict
    excluded_changes: tuple[str, ...]
    trajectory: Trajectory


async def make_attempt(
    task: AttemptTask, tests: HiddenTests, control: ControlResult, checkout: Path, deps: RunDependencies
) -> AttemptResult:
    """Lets the agent work, or takes the result of its log, and runs the hidden tests. Raises ResolverError and
    SandboxError.
    """
    started_at = time.monotonic()
    instance, workspace = task.instance, tests.workspace
    ranked = await rank_files(workspace, instance.problem)
    issue = _describe_task(task, ranked)
    agent_started_at = time.monotonic()
    ended = await _read_ended_run(task.run, workspace, deps)
    if ended is None:
        job = Job(id=task.run, repo=instance.job_repo, number=1, requester=None)
        images = await fetch_attachments(issue, instance.job_repo, IssueImages(instance))
        attempt, trajectory = await resolve_local(job, issue, checkout, deps, attachments=images)
        ended = _AgentResult(
            attempt.agent_stopped, attempt.patch, attempt.verdict, attempt.excluded_changes, trajectory
        )
    agent_seconds = time.monotonic() - agent_started_at
    score, test_seconds = await _score(task, ended.patch, tests, control)
    gold = await workspace.list_changes(Patch(base_sha=workspace.base, diff=instance.gold_patch.encode()))
    changed = await workspace.list_changes(ended.patch) if not ended.patch.is_empty else ()
    gold_files = tuple(change.path for change in gold)
    changed_files = tuple(change.path for change in changed)
    is_localized = bool(set(gold_files) & set(changed_files))
    return AttemptResult(
        instance=instance.id,
        repo=instance.repo,
        created_at=instance.created_at,
        model=task.model,
        attempt=task.number,
        run=task.run,
        verdict=ended.verdict.kind,
        score=score,
        failure=classify_failure(
            ended.trajectory,
            HiddenTestResult(
                is_resolved=score.resolved,
                is_localized=is_localized,
                has_regressions=bool(score.regressions) and not score.still_failing,
                could_run=not score.problem,
            ),
        ),
        stages=list_stages(ended.verdict, score, is_localized=is_localized),
        usage=ended.trajectory.usage(),
        harness_seconds=max(0.0, time.monotonic() - started_at - agent_seconds - test_seconds),
        test_seconds=test_seconds,
        patch=ended.patch.diff.decode(errors="replace"),
        error=ended.stopped.detail if ended.stopped.reason == "error" else "",
        excluded_changes=ended.excluded_changes,
        gold_files=gold_files,
        changed_files=changed_files,
        viewed_files=list_viewed_files(ended.trajectory)[:20],
        ranked_files=ranked,
    )


async def _score(
    task: AttemptTask, patch: Patch, tests: HiddenTests, control: ControlResult
) -> tuple[Score, float]:
    """Returns how the hidden tests judge the patch, and their duration. If the agent writes tests, the reference fix
    judges these tests instead.
    """
    if patch.is_empty:
        return Score(still_failing=control.fail_to_pass), 0.0
    if not task.writes_tests:
        run = await tests.run(patch, f"attempt-{task.number}")
        return grade(run, control.fail_to_pass, control.pass_to_pass), run.seconds
    judged = await check_instance(await tests.with_tests_of(patch))
    return Score(fail_to_pass=judged.fail_to_pass, problem=judged.problem), judged.seconds


def _describe_task(task: AttemptTask, ranked: tuple[str, ...]) -> Issue:
    """Returns the issue with what else the agent has to know."""
    issue = task.instance.issue
    notes = [issue.body]
    if task.gives_file_hints and ranked:
        notes.append(FILE_HINT.format(files=", ".join(f"`{path}`" for path in ranked)))
    if task.writes_tests:
        notes.append(WRITE_TESTS)
    return issue.model_copy(update={"body": "\n\n".join(filter(None, notes))})


async def _read_ended_run(run: RunId, workspace: Workspace, deps: RunDependencies) -> _AgentResult | None:
    """Returns the result of a run that an earlier process finished; None if the agent still has to work.

    A run that ended with an error of the model is continued.
    """
    try:
        trajectory = deps.logs.read(run)
    except LogError:
        return None
    stopped, verdict = trajectory.agent_stopped, trajectory.verdict
    if stopped is None or stopped.reason == "error" or verdict is None or verdict.partial:
        return None
    patch = trajectory.last_checkpoint() or Patch(base_sha=workspace.base, diff=b"")
    filtered = await filter_patch(workspace, patch, build_patch_limits(deps.settings))
    return _AgentResult(stopped, filtered.patch, verdict, filtered.removed, trajectory)


def read_usage(run: RunId, deps: RunDependencies) -> Usage:
    """Returns what a run has cost so far; nothing if it has no log."""
    try:
        return deps.logs.read(run).usage()
    except LogError:
        return Usage()


def list_stages(verdict: Verdict, score: Score, *, is_localized: bool) -> tuple[Stage, ...]:
    """Returns the stages that the attempt reached. They give partial credit; a later one may lack an earlier one."""
    shows_bug = bool(verdict.fail_to_pass) or "failed" in verdict.new_tests_at_base.values()
    reached: dict[Stage, bool] = {
        "reproduced": shows_bug,
        "localized": is_localized,
        "patched": verdict.kind != "empty",
        "own_tests_pass": verdict.kind in ("fixed", "conditional"),
        "pull_request": verdict.kind not in ("empty", "regressed"),
        "hidden_tests_pass": score.resolved,
    }
    return tuple(stage for stage, is_reached in reached.items() if is_reached)
