"""Renders the agent's system prompt, which describes the sandbox and the tools."""

import inspect
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from patchwright.resolver.rendering.template_renderer import render
from patchwright.runtime import skills
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


def describe_skills(features: Sequence[SandboxFeature]) -> tuple[str, ...]:
    """Returns one line for each function of the Python session that works with these features: its name, its
    arguments, and the first sentence of its docstring.
    """
    lines = []
    for name in skills.__all__:
        if name in skills.NEED_DOCUMENTS and "documents" not in features:
            continue
        function = getattr(skills, name)
        parameters = inspect.signature(function).parameters.values()
        arguments = ", ".join(str(one.replace(annotation=one.empty)) for one in parameters)
        sentence = (inspect.getdoc(function) or "").split(". ")[0].splitlines()[0].rstrip(".")
        lines.append(f"{name}({arguments}): {sentence}.")
    return tuple(lines)


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
        skills=describe_skills(sandbox.features),
        max_steps=max_steps,
        max_repairs=max_repairs,
        is_pull_request=is_pull_request,
    )
