"""Prepares a run before the agent's first step: the repository's setup and the first message."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchwright.resolver.domain import Job, PullRequest, TestRun, Thread
from patchwright.resolver.events import RunStarted, Trajectory
from patchwright.resolver.git.workspaces import Workspace
from patchwright.resolver.preparation.attachments import ThreadAttachments, attachments_directory
from patchwright.resolver.preparation.instructions import PromptInstructions
from patchwright.resolver.preparation.repo_setup import install_dependencies
from patchwright.resolver.prompts.initial_prompt import (
    PreparedSandbox,
    RepositoryFacts,
    RequestToAgent,
    build_initial_prompt,
    render_initial_prompt,
)
from patchwright.resolver.pull_request.pr_context import PullRequestContext
from patchwright.resolver.request import plan_texts
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_events import (
    BaseImageChoice,
    BaselinePending,
    EnvironmentPrepared,
    NetworkAccess,
)
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.run_task import get_task
from patchwright.resolver.runner_names import Language
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.run_settings import CODEACT
from patchwright.resolver.settings.settings import RepoConfig
from patchwright.resolver.suites.suite import Suite, Suites
from patchwright.runtime.actions import Execute
from patchwright.runtime.egress_policy import ConnectionSummary, NetworkMode
from patchwright.runtime.errors import ImageUnavailable
from patchwright.runtime.observations import ExecuteResult
from patchwright.runtime.sandbox import Sandbox, Sandboxes

logger = logging.getLogger(__name__)

SETUP_TIMEOUT = 1_200  # seconds for the installation of a repository's dependencies
BASELINE_WAIT = 5.0  # seconds that the first message waits for the baseline tests, which continue afterwards


def build_run_started(
    job: Job,
    thread: Thread,
    workspace: Workspace,
    source: str,
    branch: str,
    deps: RunDependencies,
    agent: str = CODEACT,
) -> RunStarted:
    """Returns the first event of a run. The event records everything that must not change during the run."""
    return RunStarted(
        job=job,
        thread=thread,
        base_sha=workspace.base,
        base_branch=branch,
        source=source,
        model=agent if agent in deps.agents else deps.model.name,
        agent=agent,
        sandbox=deps.sandboxes.kind,
        network=deps.sandboxes.network,
    )


async def prepare_environment(
    job: Job, workspace: Workspace, config: RepoConfig, suites: Suites, log: RunLog, deps: RunDependencies
) -> Sandboxes:
    """Returns sandboxes that use the image of the repository's language and contain its dependencies.

    If the image is unavailable, the sandboxes use the default image. If the dependencies are unavailable, the
    sandboxes do not contain them.
    """
    assert log.trajectory.run_started is not None
    sandboxes, image_choice = await select_image(suites, deps.settings.language_images, deps.sandboxes)
    sandboxes, event, visits = await install_dependencies(
        workspace,
        config,
        sandboxes,
        name=f"{job.id}-setup",
        source=_dependency_source(log.trajectory.run_started),
        timeout=SETUP_TIMEOUT,
    )
    if image_choice is not None and image_choice.problem:
        image_choice = image_choice.model_copy(update={"problem": deps.secrets.mask(image_choice.problem)})
    if event is not None or image_choice is not None:
        event = event or EnvironmentPrepared(commands=(), was_cached=True, seconds=0)
        problem = deps.secrets.mask(event.problem) if event.problem else None
        await log.append(event.model_copy(update={"problem": problem, "base_image": image_choice}))
    if visits:
        await log.append(NetworkAccess(visits=mask_visits(visits, deps.secrets)))
    return sandboxes


async def select_image(
    suites: Suites, images: Mapping[Language, str], default: Sandboxes
) -> tuple[Sandboxes, BaseImageChoice | None]:
    """Returns sandboxes with the operator's image for the language of the tests, and a description of this
    choice. The description is None if there is no image for the language.

    If the operator's image is unavailable, the default sandboxes are returned. Raises EngineUnavailable.
    """
    language = suites.primary.language if suites.primary else None
    if language is None or (image := images.get(language)) is None:
        return default, None
    try:
        sandboxes = await default.with_image(image)
    except ImageUnavailable as exc:
        logger.info("image unavailable", extra={"image": image, "error": str(exc)[:500]})
        return default, BaseImageChoice(language=language, image=image, problem=str(exc))
    return sandboxes, BaseImageChoice(language=language, image=image) if sandboxes is not default else None


def _dependency_source(started: RunStarted) -> str:
    """Returns an identifier of the repository whose code determines the dependencies. An image layer that was
    built from a fork's code must not be used for other repositories.
    """
    thread = started.thread
    if isinstance(thread, PullRequest) and not thread.is_same_repository:
        return f"{started.source}#{thread.head_repo}"
    return started.source


def mask_visits(visits: tuple[ConnectionSummary, ...], secrets: Secrets) -> tuple[ConnectionSummary, ...]:
    """Masks secrets in the host names of connections. A command could have put a secret into a host name."""
    return tuple(visit.model_copy(update={"host": secrets.mask(visit.host)}) for visit in visits)


def find_usable_network(trajectory: Trajectory, configured: NetworkMode) -> NetworkMode:
    """Returns the network that the agent is told about. It is "none" if every connection of the setup was refused,
    because those of the agent would be refused, too.

    A host that is only missing from the allowlist says nothing about the other hosts.
    """
    visits = trajectory.network_visits()
    is_refused = all(visit.denied not in (None, "unlisted") for visit in visits)
    return "none" if visits and is_refused else configured


@dataclass(frozen=True)
class FirstMessageFacts:
    """What the preparation found out, for the first message."""

    sandbox: Sandbox
    suite: Suite | None
    instructions: PromptInstructions
    attachments: ThreadAttachments
    linked_hosts: tuple[str, ...] = ()
    """Hosts that only the browsing agent can read."""


async def compose_initial_message(
    job: Job,
    workspace: Workspace,
    log: RunLog,
    baseline: asyncio.Task[TestRun | None],
    facts: FirstMessageFacts,
    pull: PullRequestContext | None = None,
) -> str:
    """Returns the first message. It contains the task and the facts about the repository. Waits a short time for the
    test results at base.
    """
    done, _ = await asyncio.wait({baseline}, timeout=BASELINE_WAIT)
    assert log.trajectory.run_started is not None
    if facts.suite is not None and not done and not log.trajectory.is_baseline_pending:
        await log.append(BaselinePending())
    task, request, configured = get_task(log.trajectory), job.request, log.trajectory.run_configured
    text, agent = request.text if task == "work" else request.remainder, request.options.agent
    # If no agent has this name, it is part of the sentence.
    if agent and agent != log.trajectory.run_started.agent:
        text = f"use {agent}: {text}"
    return render_initial_prompt(
        build_initial_prompt(
            log.trajectory.run_started.thread,
            RequestToAgent(
                text,
                task,
                plan_texts.describe_requester(job),
                mention=str(configured.settings.get("mention", "")) if configured else "",
                has_demonstration=task == "work"
                and bool(configured and configured.settings.get("demonstration")),
            ),
            RepositoryFacts(
                workspace.base,
                await workspace.list_files(),
                facts.suite,
                baseline=baseline.result() if done else None,
                instructions=facts.instructions,
            ),
            PreparedSandbox(
                facts.sandbox.root,
                sandbox_facts=await _detect_toolchain(facts.sandbox),
                environment=log.trajectory.environment_prepared,
                uploaded_attachments=facts.attachments,
                attachments_dir=attachments_directory(facts.sandbox),
                linked_hosts=facts.linked_hosts,
            ),
            pull,
        )
    )


_TOOLCHAIN_SCRIPT = Path(__file__).with_name("detect_toolchain.sh").read_text()


async def _detect_toolchain(sandbox: Sandbox) -> str:
    result = await sandbox.act(Execute(argv=("sh", "-c", _TOOLCHAIN_SCRIPT), timeout=20))
    return (
        ", ".join(result.stdout.decode(errors="replace").splitlines())
        if isinstance(result, ExecuteResult)
        else ""
    )
