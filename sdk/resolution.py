"""Resolves one issue of a repository on this disk, with proof by the repository's own tests."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from patchwright.runtime.features import ALL_FEATURES, SandboxFeature
from patchwright.runtime.frozen_model import FrozenModel
from patchwright.sdk import environment
from patchwright.sdk.background_loop import run_blocking
from patchwright.sdk.llm import LLM
from patchwright.sdk.workspaces.docker_engine import build_docker_sandboxes

if TYPE_CHECKING:
    from patchwright.resolver.domain import Issue
    from patchwright.resolver.events import Entry
    from patchwright.resolver.settings.settings import Settings
    from patchwright.runtime.sandbox import Sandboxes

DEFAULT_IMAGE = "python:3.12-slim"


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
    llm: LLM,
    *,
    sandbox: Literal["docker", "local"] = "docker",
    image: str = DEFAULT_IMAGE,
    features: Sequence[SandboxFeature] = ALL_FEATURES,
    max_steps: int = 100,
    max_usd: float = 2.0,
    run: str | None = None,
    callbacks: "Sequence[Callable[[Entry], None]]" = (),
    on_notice: Callable[[str], object] | None = None,
) -> Resolution:
    """Works on an issue in a copy of the repository's HEAD and verifies the patch. The repository is not changed.

    - `issue` is the text of the issue; its first line is the title.
    - With `sandbox="local"`, the model runs its commands on this machine, without isolation.
    - `image` is the base image of Docker sandboxes, and `features` are their parts in addition to shell and editor.
    - `run` is the name of the run. The same name continues a run that was stopped.
    - `callbacks` are called with each new entry of the run's log, and `on_notice` with sentences about the
      preparation.

    Raises SettingsError if a setting is wrong, WorkspaceError if the repository cannot be read, ModelAccessDenied if
    the provider rejects the key or the model, and SandboxError if the machine fails.
    """
    settings = {
        "data": environment.data_directory(),
        "model": llm.model,
        "sandbox": sandbox,
        "image": image,
        "sandbox_features": tuple(features),
        "max_steps": max_steps,
        "max_usd": max_usd,
        "ca_bundle": environment.ca_bundle(),
        "package_index": environment.package_index(),
    }
    name = run or f"issue-{secrets.token_hex(8)}"
    return run_blocking(
        _resolve(
            Path(repository).expanduser().resolve(), issue, llm, name, settings, tuple(callbacks), on_notice
        )
    )


async def aresolve_issue(repository: str | Path, issue: str, llm: LLM, **options: Any) -> Resolution:
    """The same as `resolve_issue`, for programs that use asyncio."""
    return await asyncio.to_thread(resolve_issue, repository, issue, llm, **options)


async def _resolve(
    repository: Path,
    issue: str,
    llm: LLM,
    run: str,
    settings_values: dict[str, Any],
    callbacks: "tuple[Callable[[Entry], None], ...]",
    on_notice: Callable[[str], object] | None,
) -> Resolution:
    from patchwright.resolver.domain import Job, JobId, Repo
    from patchwright.resolver.git.workspaces import WorkspaceFactory
    from patchwright.resolver.llm.masking_model import MaskingModel
    from patchwright.resolver.pipeline.resolve import resolve_local
    from patchwright.resolver.run.dependencies import RunDependencies
    from patchwright.resolver.run_log import FileLogStore
    from patchwright.resolver.secrets import Secrets
    from patchwright.resolver.settings.settings import Settings
    from patchwright.sdk.conversation_runner import find_answer

    settings = Settings.model_validate(settings_values)
    masked = Secrets(llm.api_keys())
    sandboxes = _build_sandboxes(settings, on_notice or (lambda _: None))
    try:
        await sandboxes.prepare()
        deps = RunDependencies(
            settings=settings,
            model=MaskingModel(llm.build(), masked),
            sandboxes=sandboxes,
            workspaces=WorkspaceFactory(settings.data / "cache", settings.ca_bundle),
            logs=FileLogStore(settings.data / "runs"),
            secrets=masked,
            listeners=callbacks,
        )
        job = Job(id=JobId(run), repo=Repo(owner="local", name=repository.name), number=1, requester=None)
        attempt, trajectory = await resolve_local(job, _build_thread(issue), repository, deps)
    finally:
        await sandboxes.close()
    usage = trajectory.usage()
    return Resolution(
        run=run,
        verdict=attempt.verdict.kind,
        patch=attempt.patch.diff,
        summary=find_answer(trajectory),
        steps=usage.steps,
        cost=usage.usd,
    )


def _build_sandboxes(settings: "Settings", on_notice: Callable[[str], object]) -> "Sandboxes":
    if settings.sandbox != "local":
        return build_docker_sandboxes(settings.image, settings.network, settings.sandbox_features, on_notice)
    from patchwright.runtime.execution.local_sandboxes import LocalSandboxes

    return LocalSandboxes(
        settings.data / "sandboxes",
        environment.host_environment(),
        settings.ca_bundle,
        settings.package_index,
        settings.sandbox_features,
    )


def _build_thread(text: str) -> "Issue":
    from patchwright.resolver.domain import Issue, User

    title, _, body = text.strip().lstrip("# \r\n\t").partition("\n")
    if not title.strip():
        raise ValueError("the issue is empty: describe the problem, with the title in the first line")
    return Issue(
        number=1,
        title=title.strip(),
        body=body.strip(),
        author=User(id=0, login="operator"),
        trusted=True,
        open=True,
        url="",
    )
