"""Renders the agent's system prompt, which describes the sandbox and the tools."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.skills.skill_docs import load_skill_docs
from patchwright.runtime.egress_policy import NetworkMode
from patchwright.runtime.features import SandboxFeature


@dataclass(frozen=True)
class SandboxDescription:
    """What a system prompt says about the sandbox."""

    root: str
    """Absolute path of the repository's work tree."""
    scratch: str
    """Absolute path of a directory for the agent's own files."""
    kind: Literal["docker", "local"]
    network: NetworkMode = "none"
    features: Sequence[SandboxFeature] = ()
    secret_names: Sequence[str] = ()
    """The secrets that commands may use."""


def render_system_prompt(
    sandbox: SandboxDescription,
    *,
    tools: Collection[str] = (),
    max_steps: int | None = None,
    max_repairs: int = 0,
    is_pull_request: bool = False,
    has_vision: bool = True,
) -> str:
    """Renders the system prompt.

    `tools` are the names of the agent's tools. The agent gets at most `max_steps` replies; None means that
    the prompt does not mention this limit. A failed patch is returned to the agent at most `max_repairs`
    times. If `is_pull_request` is True, the task comes from the reviewers of a pull request. Otherwise, the
    task is an issue. If `has_vision` is False, no model describes images, and the prompt does not mention the
    functions that need one.
    """
    docs = load_skill_docs() if "kernel" in sandbox.features else ()
    skills = [doc for doc in docs if has_vision or not doc.needs_vision]
    return render(
        "prompts/system.md.j2",
        **vars(sandbox),
        tools=tools,
        max_steps=max_steps,
        max_repairs=max_repairs,
        is_pull_request=is_pull_request,
        skills=[doc for doc in skills if doc.is_reader],
        unlisted_skills=[doc.name for doc in skills if not doc.is_reader],
    )
