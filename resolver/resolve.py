"""THE WAY OF AN ISSUE, top to bottom: resolve, admit, attempt; what becomes of it is in deliver.py."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from resolver import prose
from resolver.agent import Agent, begin
from resolver.ci.release import run_ci
from resolver.ci.repair import repair
from resolver.circumstances import Connected
from resolver.deliver import Attempt, deliver
from resolver.domain import (
    Job,
    Outcome,
    Patch,
    PullRequest,
    Refused,
    SuiteRun,
    Thread,
    Verdict,
)
from resolver.errors import NoSuchBranch, NotFound, SettingsError, UsageError
from resolver.events import Ended, Judged, Resumed, Settled, Told, Trajectory
from resolver.follow_up import follow_up
from resolver.forge import Forge, RepoFacts
from resolver.gate import missing
from resolver.git.merging import Merge
from resolver.kit import Kit, Reporting
from resolver.log import Log
from resolver.outfit import outfit
from resolver.preparing.attachments import NOTHING, Attached, attachments, put
from resolver.preparing.instructions import instructions
from resolver.preparing.preparing import first_message, masked_visits, prepared, started
from resolver.preparing.skills import find_skills
from resolver.proof.baseline import Baselines, Bases
from resolver.proof.merge import prove_merge
from resolver.proof.repairs import judged
from resolver.pull.seen import PullSeen
from resolver.request import planning, planning_prose
from resolver.request.admission import admit, dealt_with, going_on, meant, refuse, waiting
from resolver.request.allowance import under
from resolver.request.base import at_base
from resolver.request.request import Request
from resolver.rules import was_stopped
from resolver.sandbox.bench import Bench, at_bench
from resolver.sandbox.putting_back import put_back
from resolver.security.policy import Permitted, bounds, permitted
from resolver.settings import configuration
from resolver.settings.repository import complain, read_config, sentences
from resolver.suites.find import find_suites
from resolver.suites.lacking import cannot_be_run
from resolver.tools.investigate import MAX_REPORT
from resolver.validate import prove
from resolver.workspace import Workspace

UNJUDGED = Verdict(kind="untested", reason="The run asked or answered something: nothing was tested.")
STILL_RUNNING = "still being run on the untouched code"  # as templates/prompts/brief.md.j2 says it

T = TypeVar("T")


async def resolve(job: Job, kit: Kit, forge: Forge, reporting: Reporting) -> Outcome:
    """From a trigger to a pull request or a comment; the same job again goes on where its log ends.

    Raises ResolverError or SandboxError for accidents; the log is kept, and nothing was claimed that was not done.
    """
    async with kit.logs.open(job.id, kit.listeners) as log:
        if settled := log.trajectory.settled:
            return settled.outcome
        try:
            thread = log.trajectory.started.thread if log.trajectory.started else await forge.thread(job)
            job = await meant(job, thread, log.trajectory, kit.logs)
        except NotFound:
            if job.requester is None:
                raise  # the operator named it, and reads why at the terminal
            return await refuse(job, prose.refusal("gone", job), None, forge, log)
        facts = await forge.facts(job.repo)
        if job.checks:
            return await repair(job, thread, facts, log, kit, forge, reporting, attempt)
        if refusal := await admit(job, thread, facts, forge, kit.settings):
            return await refuse(job, refusal.explanation, facts, forge, log)
        if how := await dealt_with(job, thread, log.trajectory, kit.logs):
            dealt = Refused(explanation=prose.refusal(how, job))
            await log.append(Settled(outcome=dealt))
            return dealt
        if job.asked.verb == "run-ci" and isinstance(thread, PullRequest):
            released = await run_ci(job, thread, facts, kit, forge)
            await log.append(Settled(outcome=released))
            return released
        asked = await waiting(job, thread, log.trajectory, kit.logs, kit.settings.approval_days)
        if isinstance(asked, Refused):
            return await refuse(job, asked.explanation, facts, forge, log)
        if asked is None:
            try:
                chosen = under(kit, planning.options(log.trajectory, job.id, job.asked.options))
                return await settle(job, thread, facts, log, chosen, forge, reporting)
            except NoSuchBranch as exc:
                return await refuse(job, prose.no_branch(exc.branch), facts, forge, log)
        if log.trajectory.resumed is None:
            await log.append(Resumed(run=asked))
        async with kit.logs.open(asked, kit.listeners) as earlier:
            chosen = under(kit, planning.options(earlier.trajectory, job.id, job.asked.options))
            outcome = await answered(job, thread, facts, earlier, chosen, forge, reporting)
        await log.append(Settled(outcome=outcome))
        return outcome


async def settle(
    job: Job, thread: Thread, facts: RepoFacts, log: Log, kit: Kit, forge: Forge, reporting: Reporting
) -> Outcome:
    """Work on an admitted job to its end, and publish what came of it."""
    if isinstance(thread, PullRequest):
        return await follow_up(job, thread, facts, log, kit, forge, reporting, attempt)
    async with reporting(job, log):
        credentials = await forge.credentials(job.repo)
        kit.secrets.add(credentials.token)
        async with at_base(job, thread, log.trajectory, facts, kit.workspaces, credentials) as workspace:
            if log.trajectory.started is None:
                branch = workspace.base_branch or facts.default_branch
                await log.append(started(job, thread, workspace, facts.clone_url, branch, kit))
            assert log.trajectory.started is not None
            await complain(job, workspace, forge)
            attached = await attachments(log.trajectory.started.thread, job.repo, forge)
            tried = await attempt(job, workspace, log, kit, attached)
            outcome = await deliver(job, tried, workspace, log.trajectory, forge, kit.settings, kit.secrets)
    await log.append(Settled(outcome=outcome))
    return outcome


async def answered(
    job: Job, thread: Thread, facts: RepoFacts, log: Log, kit: Kit, forge: Forge, reporting: Reporting
) -> Outcome:
    """Go on with a run that asked or was stopped, in its own log; once for each trigger."""
    told = any(isinstance(event, Told) and event.by == job.id for event in log.trajectory)
    word = None if told else going_on(job, log.trajectory, job.asked)
    if word is None and (settled := log.trajectory.settled):
        return settled.outcome
    if word is not None:
        await log.append(word)
    return await settle(job, thread, facts, log, kit, forge, reporting)


async def attempt(
    job: Job,
    workspace: Workspace,
    log: Log,
    kit: Kit,
    attached: Attached = NOTHING,
    pull: PullSeen | None = None,
    merge: Merge | None = None,
) -> Attempt:
    """A proven (or disproven) patch for a run that has started. It knows no forge.

    `pull` is what the agent is shown where the work is on a pull request, `merge` where its commit is one.
    """
    trajectory = log.trajectory
    assert trajectory.started is not None, "the log begins with Started"
    config = (await read_config(workspace.rules)).config
    seconds = config.test_timeout or kit.settings.test_timeout
    suites = await find_suites(workspace.rules, config)
    suite = suites.likely

    def undone(so_far: Trajectory, at_base: SuiteRun | None) -> tuple[str, ...]:
        return missing(so_far, suite.command if suite else None, runnable=not cannot_be_run(at_base))

    async def allowed() -> Permitted:
        return await permitted(workspace, _patch(log, workspace), bounds(kit.settings))

    async def tried(ending: Ended, verdict: Verdict) -> Attempt:
        left_open = undone(log.trajectory, verdict.before)
        kept = await allowed()
        return Attempt(ending, kept.patch, verdict, left_open, kept.left_out)

    if (verdict := trajectory.verdict) and not verdict.partial and (ending := trajectory.ended):
        return await tried(ending, verdict)  # killed after the proof
    questioned = planning.is_question(log.trajectory)  # nothing is changed, and nothing proven
    if (ending := trajectory.ended) and (ending.reason == "asked" or questioned):
        return await tried(ending, UNJUDGED)  # killed before that was said

    await configuration.record(log, kit, config)
    sandboxes = await prepared(job, workspace, config, suites, log, kit)

    async def tests_at_base() -> SuiteRun | None:
        return await bases.begin(suite) if suite and not questioned else None

    name = f"{job.id}-agent"

    skills = await find_skills(workspace.rules)
    told = instructions(skills, trajectory.started.thread, job.asked.text, kit.settings.instructions_tokens)

    async def work(bench: Bench) -> Attempt:
        async with outfit(
            job,
            workspace,
            log,
            kit,
            bench,
            sandboxes=sandboxes,
            skills=skills,
            readable=told.readable,
            gate=lambda so_far: undone(so_far, known_at_base()),
            news=news,
        ) as made:
            briefed = bool(log.trajectory.decisions())
            there = attached if briefed and bench.adopted else await put(attached, made.sandbox)
            if not briefed:
                text = await first_message(
                    job, workspace, made.sandbox, log, suite, before, told, there, pull, sandboxes.plugins
                )
                root, scratch = made.sandbox.root, made.sandbox.scratch
                where = (root, scratch, sandboxes.kind, sandboxes.network)
                system = prose.system(
                    *where,
                    sandboxes.plugins,
                    made.secrets,
                    delegates=kit.settings.delegate_steps > 0,
                    reviewed=pull is not None,
                )
                if questioned:
                    system = planning_prose.explain_system(*where, MAX_REPORT, reviewed=pull is not None)
                await begin(log, system, text, made.agent.tools, there.pictures)
            start_over = partial(put_back, made.sandbox, workspace, log)
            return await proven(made.agent, start_over)

    async def news() -> tuple[Told, ...]:
        meanwhile = ended_meanwhile()
        return (*((meanwhile,) if meanwhile else ()), *await kit.news(job, log.trajectory))

    def ended_meanwhile() -> Told | None:
        """How the tests ended at base, if the first message could not say it yet."""
        brief = next(e.text for e in log.trajectory if isinstance(e, Told) and e.source == "brief")
        judged_since = any(isinstance(event, Judged) for event in log.trajectory)  # it knows more by now
        if judged_since or STILL_RUNNING not in brief or (run := known_at_base()) is None:
            return None
        return Told(text=prose.baseline(run), source="baseline")

    def known_at_base() -> SuiteRun | None:
        ended = before.done() and not before.cancelled() and not before.exception()
        return before.result() if ended else None

    async def proven(agent: Agent, start_over: Callable[[], Awaitable[bool]]) -> Attempt:
        while True:
            try:
                ending = await agent.run(log)
            finally:  # also when the sandbox is lost: what it did by the network is done
                if visits := sandboxes.visits(name):
                    await log.append(Connected(visits=masked_visits(visits, kit.secrets)))
            if ending.reason == "asked" or questioned:
                return await tried(ending, UNJUDGED)
            kept = await allowed()  # what is judged is what can be delivered
            judging = partial(prove_merge, merge, remembered) if merge else prove
            proof = partial(judging, workspace, kept.patch, suites, sandboxes, job.id, seconds, bases)
            verdict = await judged(log, kit, ending, kept.patch, proof, start_over)
            if verdict is not None:
                return await tried(ending, verdict)

    untouched = workspace.at_commit(merge.into) if merge else workspace
    remembered = Baselines(kit.settings.data / "cache" / "baselines")
    async with (
        Bases(untouched, sandboxes, job.id, seconds, remembered) as bases,
        alongside(tests_at_base()) as before,
    ):
        return await at_bench(sandboxes, name, work, resumed=bool(trajectory.decisions()))


def _patch(log: Log, workspace: Workspace) -> Patch:
    return log.trajectory.checkpoint() or Patch(base=workspace.base, diff=b"")


@asynccontextmanager
async def alongside(work: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run `work` beside the block; it does not outlive it."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def resolve_path(
    job: Job, thread: Thread, path: Path, kit: Kit, answer: str = ""
) -> tuple[Attempt, Trajectory]:
    """The same for a repository on this disk: a judged patch, and no forge.

    `answer`: to the question with which the run ended. Raises UsageError when it ended with none.
    """
    async with kit.logs.open(job.id, kit.listeners) as log:
        if answer and ((ended := log.trajectory.ended) is None or ended.reason != "asked"):
            raise UsageError(f"the run {job.id} waits for no answer: go on with it without --answer")
        stopped = log.trajectory.verdict is not None and was_stopped(log.trajectory)
        if (answer or stopped) and (word := going_on(job, log.trajectory, Request("work", answer, answer))):
            await log.append(word)
        ref = log.trajectory.started.base if log.trajectory.started else "HEAD"
        async with kit.workspaces.local(path, ref) as workspace:
            if faults := (await read_config(workspace)).faults:  # whoever reads this can mend it
                raise SettingsError(sentences(faults))
            if log.trajectory.started is None:
                await log.append(
                    started(job, thread, workspace, str(path), workspace.base_branch or "HEAD", kit)
                )
            return await attempt(job, workspace, log, kit), log.trajectory
