"""Resolves one issue of a repository on this disk, with proof by the repository's own tests."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from patchwright.runtime.features import ALL_FEATURES
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.sdk import environment
from patchwright.sdk.agents import Agent
from patchwright.sdk.background_loop import run_blocking
from patchwright.sdk.docker_sandbox_setup import DEFAULT_IMAGE, DockerOptions, build_docker_sandboxes
from patchwright.sdk.llm import LLM

if TYPE_CHECKING:
    from patchwright.resolver.events import Entry
    from patchwright.resolver.settings.settings import Settings
    from patchwright.runtime.sandbox import Sandboxes


class Resolution(FrozenModel):
    """The result of `resolve_issue`."""

    run: str
    """Name of the run, whose log `patchwright view` shows."""
    verdict: Literal["fixed", "conditional", "unproven", "untested", "regressed", "empty"]
    """What the repository's tests show: see docs/proof.md."""
    patch: bytes
    """The change, for `git apply`; empty if there is none."""
    summary: str
    """What was wrong, what was changed and how it was tested, in the agent's words."""
    steps: int
    cost: Decimal
    """Cost in dollars, as far as the prices are known."""

    @property
    def is_fixed(self) -> bool:
        """True if at least one test fails without the patch and passes with it, no test that passed before fails, and
        nobody has to agree to a condition.
        """
        return self.verdict == "fixed"


def resolve_issue(
    repository: str | Path,
    issue: str,
    agent: Agent | LLM,
    *,
    sandbox: Literal["docker", "local"] = "docker",
    run: str | None = None,
    callbacks: "Sequence[Callable[[Entry], None]]" = (),
    **options: Unpack[DockerOptions],
) -> Resolution:
    """Works on an issue in a copy of the repository's HEAD and verifies the patch. The repository is not changed.

    - `issue` is the text of the issue; its first line is the title.
    - `agent` gives the model and the limits. Its tools and prompts are those of the bot, whatever it says.
    - With `sandbox="local"`, the model runs its commands on this machine, without isolation.
    - `run` is the name of the run. The same name continues a run that was stopped.
    - `callbacks` are called with each new entry of the run's log.
    - `options` are those of DockerOptions, such as `image`.

    Raises SettingsError if a setting is wrong, WorkspaceError if the repository cannot be read, ModelAccessDenied if
    the provider rejects the key or the model, and SandboxError if the machine fails.
    """
    return run_blocking(
        aresolve_issue(repository, issue, agent, sandbox=sandbox, run=run, callbacks=callbacks, **options)
    )


async def aresolve_issue(
    repository: str | Path,
    issue: str,
    agent: Agent | LLM,
    *,
    sandbox: Literal["docker", "local"] = "docker",
    run: str | None = None,
    callbacks: "Sequence[Callable[[Entry], None]]" = (),
    **options: Unpack[DockerOptions],
) -> Resolution:
    """The same as `resolve_issue`, for programs that use asyncio."""
    from patchwright.resolver.domain import Issue, Job, JobId, Repo
    from patchwright.resolver.git.workspaces import WorkspaceFactory
    from patchwright.resolver.llm.masking_model import MaskingModel
    from patchwright.resolver.pipeline.resolve import resolve_local
    from patchwright.resolver.run.dependencies import RunDependencies
    from patchwright.resolver.run_log import FileLogStore
    from patchwright.resolver.secrets import Secrets
    from patchwright.sdk.conversation_runner import find_answer

    thread = Issue.from_text(issue)
    if not thread.title:
        raise ValueError("the issue is empty: describe the problem, with the title in the first line")
    agent = agent if isinstance(agent, Agent) else Agent(llm=agent)
    llm = agent.llm
    path = await asyncio.to_thread(lambda: Path(repository).expanduser().resolve())
    settings = _build_settings(agent, sandbox, options)
    masked = Secrets(llm.api_keys())
    sandboxes = build_docker_sandboxes(options) if sandbox == "docker" else _build_local_sandboxes(settings)
    job_id = JobId(run or f"issue-{secrets.token_hex(8)}")
    try:
        await sandboxes.prepare()
        deps = RunDependencies(
            settings=settings,
            model=MaskingModel(llm.build(), masked),
            sandboxes=sandboxes,
            workspaces=WorkspaceFactory(settings.data / "cache", settings.ca_bundle),
            logs=FileLogStore(settings.data / "runs"),
            secrets=masked,
            listeners=tuple(callbacks),
        )
        job = Job(id=job_id, repo=Repo(owner="local", name=path.name), number=1, requester=None)
        attempt, trajectory = await resolve_local(job, thread, path, deps)
    finally:
        await sandboxes.close()
    usage = trajectory.usage()
    return Resolution(
        run=job_id,
        verdict=attempt.verdict.kind,
        patch=attempt.patch.diff,
        summary=find_answer(trajectory),
        steps=usage.steps,
        cost=usage.usd,
    )


def _build_settings(agent: Agent, sandbox: str, options: DockerOptions) -> "Settings":
    from patchwright.resolver.settings.settings import Settings

    return Settings.model_validate(
        {
            "data": environment.data_directory(),
            "model": agent.llm.model,
            "sandbox": sandbox,
            "image": options.get("image", DEFAULT_IMAGE),
            "network": options.get("network", "allowlist"),
            "sandbox_features": tuple(options.get("features", ALL_FEATURES)),
            "max_steps": agent.max_steps,
            "max_usd": str(agent.max_usd),
            "timeout": agent.max_seconds,
            "ca_bundle": environment.ca_bundle(),
            "package_index": environment.package_index(),
        }
    )


def _build_local_sandboxes(settings: "Settings") -> "Sandboxes":
    from patchwright.runtime.execution.local_sandboxes import LocalSandboxes

    return LocalSandboxes(
        settings.data / "sandboxes",
        environment.host_environment(),
        settings.ca_bundle,
        settings.package_index,
        settings.sandbox_features,
    )
