"""Renders the agent's system prompt, which describes the sandbox and the tools."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from patchwright.resolver.rendering.template_renderer import render
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
) -> str:
    """Renders the system prompt.

    `tools` are the names of the agent's tools. The agent gets at most `max_steps` replies; None means that
    the prompt does not mention this limit. A failed patch is returned to the agent at most `max_repairs`
    times. If `is_pull_request` is True, the task comes from the reviewers of a pull request. Otherwise, the
    task is an issue.
    """
    return render(
        "prompts/system.md.j2",
        **vars(sandbox),
        tools=tools,
        max_steps=max_steps,
        max_repairs=max_repairs,
        is_pull_request=is_pull_request,
    )
