"""The whole system prompt is held by golden files, so that no rule in it is lost unnoticed."""

import os
from pathlib import Path

import pytest

from patchwright.resolver.prompts.system_prompt import SandboxDescription, render_system_prompt
from patchwright.resolver.skills.skills import RepoSkills
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.read_skill_tool import build_skill_tools
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.runtime.features import ALL_FEATURES
from tests.resolver.agent_runs import FakeSandbox

GOLDEN = Path(__file__).parents[1] / "golden/system_prompts"
ALL_TOOLS = (
    *build_sandbox_tools(FakeSandbox(), ALL_FEATURES),
    *build_control_tools(),
    *build_skill_tools(RepoSkills()),
)


def render(name: str) -> str:
    if name == "local":
        return render_system_prompt(SandboxDescription("/home/someone/calc", "/tmp/scratch", "local"))
    return render_system_prompt(
        SandboxDescription(
            "/workspace", "/tmp/scratch", "docker", "allowlist", ALL_FEATURES, ("TEST_TOKEN",)
        ),
        tools=[tool.spec.name for tool in ALL_TOOLS],
        max_steps=100,
        max_repairs=2,
    )


@pytest.mark.parametrize("name", ["docker", "local"])
def test_the_system_prompt_equals_its_golden_file(name: str) -> None:
    """`script/regenerate` renews the files."""
    path, text = GOLDEN / f"{name}.md", render(name)
    if os.environ.get("PATCHWRIGHT_REGENERATE"):
        path.write_text(text)
    assert text == path.read_text()
