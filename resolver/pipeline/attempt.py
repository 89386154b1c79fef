"""The work on a started run: prepare the sandbox, let the agent work, and verify its patch. Does not use the forge.

The steps can be repeated after a crash, because each one first reads the log.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from patchwright.resolver import run_task
from patchwright.resolver.activity.finish_checks import find_missing_steps
from patchwright.resolver.agent.agent import Agent, record_prompts
from patchwright.resolver.browsing.linked_hosts import find_linked_hosts
from patchwright.resolver.delegation.delegate_tool import MAX_REPORT
from patchwright.resolver.domain import Job, Patch, TestRun, Verdict
from patchwright.resolver.events import AgentStopped, Message, Trajectory
from patchwright.resolver.git.merge import MergeResult
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.llm.model_check import check_endpoint
from patchwright.resolver.pipeline.agent_choice import choose_mcp_servers, choose_tools, load_run_skills
from patchwright.resolver.pipeline.agent_setup import AgentBuilder, AgentSetup
from patchwright.resolver.pipeline.commit_message import write_commit_message
from patchwright.resolver.pipeline.publish import Attempt
from patchwright.resolver.pipeline.run_start import (
    FirstMessageFacts,
    compose_initial_message,
    find_usable_network,
    mask_visits,
    prepare_environment,
)
from patchwright.resolver.preparation.attachments import NO_ATTACHMENTS, ThreadAttachments, write_attachments
from patchwright.resolver.preparation.instructions import (
    PromptInstructions,
    find_newly_triggered,
    select_instructions,
)
from patchwright.resolver.prompts.initial_prompt import describe_baseline
from patchwright.resolver.prompts.system_prompt import SandboxDescription, render_system_prompt
from patchwright.resolver.proof.baseline import BaselineCache, BaselineRuns, run_alongside
from patchwright.resolver.proof.merge_verification import verify_merge
from patchwright.resolver.proof.repair_loop import verify_or_continue
from patchwright.resolver.proof.verification import VerdictCallback, verify_patch
from patchwright.resolver.pull_request.pr_context import PullRequestContext
from patchwright.resolver.rendering.template_renderer import render, render_prompt
from patchwright.resolver.run import effective_settings
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run.repo_config import read_repo_config
from patchwright.resolver.run_events import NetworkAccess
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.sandbox.session import SandboxSession, run_in_sandbox
from patchwright.resolver.sandbox.worktree_reset import reset_worktree
from patchwright.resolver.security.patch_policy import FilteredPatch, build_patch_limits, filter_patch
from patchwright.resolver.settings.run_settings import McpServer
from patchwright.resolver.skills.skills import RepoSkills
from patchwright.resolver.suites.discovery import find_suites
from patchwright.resolver.suites.execution import TestSetup
from patchwright.resolver.suites.missing_program import is_runner_missing
from patchwright.resolver.suites.suite import Suites
from patchwright.resolver.text.untrusted import strip_hidden

UNTESTED_VERDICT = Verdict(
    kind="untested", reason="The run asked or answered a question, so nothing was tested."
)

MAX_INSTRUCTION_TOKENS = 8_000  # that the maintainers' instructions take up in the prompts


@dataclass(frozen=True)
class AgentTask:
    """A started run, and what its agent works on."""

    job: Job
    workspace: Workspace
    log: RunLog
    deps: RunDependencies
    attachments: ThreadAttachments = NO_ATTACHMENTS
    pull_context: PullRequestContext | None = None
    """The pull request's context for the agent; None for an issue, and for a run that has begun."""
    merge: MergeResult | None = None
    """The merge whose result is the base commit; None if the base commit is an ordinary commit."""

    @property
    def is_question(self) -> bool:
        """True if the run answers a question. It changes nothing, so nothing is verified."""
        return run_task.is_question(self.log.trajectory)

    async def filter_patch(self) -> FilteredPatch:
        """Returns the current patch without the changes that the operator forbids. Only this patch is verified and
        published.
        """
        patch = self.log.trajectory.last_checkpoint() or Patch(base_sha=self.workspace.base, diff=b"")
        return await filter_patch(self.workspace, patch, build_patch_limits(self.deps.settings))

    def find_missing_steps(
        self, trajectory: Trajectory, suites: Suites, baseline: TestRun | None
    ) -> tuple[str, ...]:
        """Returns one sentence for each thing that is missing before the work is finished."""
        command = suites.primary.command if suites.primary else None
        can_run_tests = command is not None and not is_runner_missing(baseline)
        return find_missing_steps(trajectory, command, can_run_tests=can_run_tests)

    async def complete(self, stopped: AgentStopped, verdict: Verdict, suites: Suites) -> Attempt:
        open_points = self.find_missing_steps(self.log.trajectory, suites, verdict.before)
        filtered = await self.filter_patch()
        return Attempt(stopped, filtered.patch, verdict, open_points, filtered.removed)


async def attempt_patch(task: AgentTask) -> Attempt:
    """Works on a started run until its patch is verified."""
    log, deps, workspace = task.log, task.deps, task.workspace
    started = log.trajectory.run_started
    assert started is not None, "the log does not begin with RunStarted"
    config = (await read_repo_config(workspace.config_source)).config
    suites = await find_suites(workspace.config_source, config)
    if attempt := await _find_complete_attempt(task, suites):
        return attempt
    if deps.checks_endpoint and log.trajectory.agent_stopped is None:
        await check_endpoint(deps.settings)
    await effective_settings.record_settings(log, deps, config)
    sandboxes = await prepare_environment(task.job, workspace, config, suites, log, deps)
    skills = await load_run_skills(task.job, workspace, deps.settings)
    # The request of the run, and not that of a job that continues it.
    request = started.job.request.text
    instructions = select_instructions(skills, started.thread, request, MAX_INSTRUCTION_TOKENS)
    seconds = config.test_timeout or deps.settings.test_timeout
    head = workspace.with_base(task.merge.head) if task.merge else workspace
    cache = BaselineCache(deps.settings.data / "cache" / "baselines")
    async with (
        BaselineRuns(head, sandboxes, task.job.id, seconds, cache) as baseline_runs,
        run_alongside(_run_baseline(task, suites, baseline_runs)) as baseline_task,
    ):
        tests = TestSetup(suites, sandboxes, task.job.id, seconds)
        baseline = _Baseline(baseline_task, baseline_runs, cache, log)
        active = [included.skill for included in instructions.included]
        added_tools = [name for skill in active for name in skill.tools]
        tools = tuple(dict.fromkeys((*choose_tools(config, deps.settings), *added_tools)))
        servers = choose_mcp_servers(active, deps.settings)
        steps = _AttemptSteps(task, tests, skills, instructions, baseline, tools, servers)
        return await run_in_sandbox(
            sandboxes, steps.sandbox_name, steps.work, resumed=bool(log.trajectory.replies())
        )


async def _find_complete_attempt(task: AgentTask, suites: Suites) -> Attempt | None:
    """Returns the attempt if an earlier process was killed after the last step, before it could publish."""
    stopped, verdict = task.log.trajectory.agent_stopped, task.log.trajectory.verdict
    if stopped is None or (stopped.confirmation and task.deps.ask_person):
        return None
    if verdict and not verdict.partial:
        return await task.complete(stopped, verdict, suites)
    if stopped.reason == "input_required" or task.is_question:
        return await task.complete(stopped, UNTESTED_VERDICT, suites)
    return None


async def _run_baseline(task: AgentTask, suites: Suites, runs: BaselineRuns) -> TestRun | None:
    return await runs.start(suites.primary) if suites.primary and not task.is_question else None


@dataclass(frozen=True)
class _Baseline:
    """The test runs at base, which begin while the agent works."""

    task: asyncio.Task[TestRun | None]
    """Runs the primary suite."""
    runs: BaselineRuns
    cache: BaselineCache
    log: RunLog

    def get_run(self) -> TestRun | None:
        """Returns the run of the primary suite, or None if it has not ended or has failed."""
        ended = self.task.done() and not self.task.cancelled() and not self.task.exception()
        return self.task.result() if ended else None

    def get_message(self) -> Message | None:
        """Returns a message with the results. Returns None if the tests are still running, or if the first message
        already contained the results.
        """
        if not self.log.trajectory.is_baseline_pending or (run := self.get_run()) is None:
            return None
        return Message(
            text=render_prompt("baseline.md.j2", **describe_baseline(run)),
            source="baseline",
        )


@dataclass(frozen=True)
class _AttemptSteps:
    """The steps of an attempt in a sandbox. If the sandbox is lost, `work` is called again with a new one."""

    task: AgentTask
    tests: TestSetup
    skills: RepoSkills
    instructions: PromptInstructions
    baseline: _Baseline
    installed_tools: tuple[str, ...]
    mcp_servers: Mapping[str, McpServer]

    @property
    def sandbox_name(self) -> str:
        return f"{self.task.job.id}-agent"

    async def work(self, session: SandboxSession) -> Attempt:
        """Lets the agent work until its patch is verified or it stops. The first step writes the prompts, unless the
        agent has replied before.
        """
        task, log = self.task, self.task.log
        builder = AgentBuilder(
            job=task.job,
            workspace=task.workspace,
            log=log,
            deps=task.deps,
            session=session,
            sandboxes=self.tests.sandboxes,
            skills=self.skills,
            can_read_skills=self.instructions.has_more_to_read,
            installed_tools=self.installed_tools,
            mcp_servers=self.mcp_servers,
        )
        async with builder.build(self._find_missing_steps, self._get_new_messages) as setup:
            has_started = bool(log.trajectory.replies())
            attachments = task.attachments
            if not (has_started and session.is_adopted):
                attachments = await write_attachments(attachments, setup.sandbox)
            if not has_started:
                await self._record_prompts(setup, attachments)
            start_over = partial(reset_worktree, setup.sandbox, task.workspace, log)
            return await self._work_and_verify(setup.agent, start_over)

    def _find_missing_steps(self, current: Trajectory) -> tuple[str, ...]:
        return self.task.find_missing_steps(current, self.tests.suites, self.baseline.get_run())

    async def _get_new_messages(self) -> tuple[Message, ...]:
        message, trajectory = self.baseline.get_message(), self.task.log.trajectory
        triggered = find_newly_triggered(self.skills, self.instructions, trajectory)
        messages = await self.task.deps.get_new_messages(self.task.job, trajectory)
        return ((message,) if message else ()) + triggered + messages

    async def _record_prompts(self, setup: AgentSetup, attachments: ThreadAttachments) -> None:
        """Logs the system prompt and the first message."""
        task, sandboxes, settings = self.task, self.tests.sandboxes, self.task.deps.settings
        can_browse_links = (
            settings.browse_links and sandboxes.network == "allowlist" and "browser" in sandboxes.features
        )
        facts = FirstMessageFacts(
            setup.sandbox,
            self.tests.suites.primary,
            self.instructions,
            attachments,
            find_linked_hosts(task.log.trajectory) if can_browse_links else (),
        )
        text = await compose_initial_message(
            task.job, task.workspace, task.log, self.baseline.task, facts, task.pull_context
        )
        sandbox = SandboxDescription(
            setup.sandbox.root,
            setup.sandbox.scratch,
            sandboxes.kind,
            find_usable_network(task.log.trajectory, sandboxes.network),
            sandboxes.features,
            setup.secret_names,
        )
        is_pull_request = task.pull_context is not None
        if task.is_question:
            system = render(
                "prompts/explain_system.md.j2",
                **vars(sandbox),
                max_length=MAX_REPORT,
                is_pull_request=is_pull_request,
            )
        else:
            system = render_system_prompt(
                sandbox,
                tools=[spec.name for spec in setup.agent.tools.specs],
                max_steps=settings.max_steps,
                max_repairs=settings.max_repairs,
                is_pull_request=is_pull_request,
            )
        system += render("prompts/system_instructions.md.j2", instructions=self.instructions)
        if setup.micro_agent is not None:
            micro_agent_text, _ = strip_hidden(setup.micro_agent.text)
            system += "\n" + render(
                "prompts/micro_agent_task.md.j2", skill=setup.micro_agent, text=micro_agent_text
            )
        system, text = self._surround("system", system), self._surround("message", text)
        started = task.log.trajectory.run_started
        author = started.thread.author.login if started else ""
        await record_prompts(task.log, system, text, setup.agent.tools, attachments.images, author)

    def _surround(self, name: Literal["system", "message"], text: str) -> str:
        """Returns the prompt between the operator's own texts, which are templates."""
        prefix, suffix = (
            render_prompt(f"{name}_{end}.md.j2", repo=self.task.job.repo) for end in ("prefix", "suffix")
        )
        return "\n\n".join(filter(None, (prefix, text.rstrip(), suffix))) + "\n"

    async def _work_and_verify(self, agent: Agent, start_over: Callable[[], Awaitable[bool]]) -> Attempt:
        """Returns the attempt when a verdict is final. Until then, the agent works on what the verification found."""
        task, log = self.task, self.task.log
        while True:
            try:
                stopped = await agent.run(log)
            finally:  # The connections are recorded even if the sandbox is lost.
                if visits := self.tests.sandboxes.take_connections(self.sandbox_name):
                    await log.append(NetworkAccess(visits=mask_visits(visits, task.deps.secrets)))
            if stopped.reason == "input_required" or task.is_question:
                return await task.complete(stopped, UNTESTED_VERDICT, self.tests.suites)
            patch = (await task.filter_patch()).patch
            verify = partial(self._verify, patch)
            verdict = await verify_or_continue(log, task.deps, stopped, patch, verify, start_over)
            if verdict is not None:
                attempt = await task.complete(stopped, verdict, self.tests.suites)
                if task.deps.settings.commit_writer:
                    await write_commit_message(log, task.deps, self.skills, attempt.patch)
                return attempt

    async def _verify(self, patch: Patch, on_first_verdict: VerdictCallback) -> Verdict:
        workspace, runs = self.task.workspace, self.baseline.runs
        if self.task.merge:
            return await verify_merge(
                self.task.merge, self.baseline.cache, workspace, patch, self.tests, runs
            )
        return await verify_patch(workspace, patch, self.tests, runs, on_first_verdict)
