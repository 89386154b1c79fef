"""The whole system prompt is held by golden files, so that no rule in it is lost unnoticed."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchwright.resolver.delegation.delegate_tool import MAX_REPORT
from patchwright.resolver.prompts.system_prompt import SandboxDescription, render_system_prompt
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.skills.skills import RepoSkills
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.read_skill_tool import build_skill_tools
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.runtime import skills
from patchwright.runtime.features import ALL_FEATURES
from tests.resolver.agent_runs import FakeSandbox

GOLDEN = Path(__file__).parents[1] / "golden/system_prompts"
ALL_TOOLS = (
    *build_sandbox_tools(FakeSandbox(), ALL_FEATURES),
    *build_control_tools(),
    *build_skill_tools(RepoSkills()),
)


TOOL_NAMES = [tool.spec.name for tool in ALL_TOOLS]
DOCKER = SandboxDescription(
    "/workspace", "/tmp/scratch", "docker", "allowlist", ALL_FEATURES, ("TEST_TOKEN",)
)
LIMITS: dict[str, Any] = {"max_steps": 100, "max_repairs": 2}
VARIANTS: dict[str, Callable[[], str]] = {
    "docker": lambda: render_system_prompt(DOCKER, tools=TOOL_NAMES, **LIMITS),
    "local": lambda: render_system_prompt(SandboxDescription("/home/someone/calc", "/tmp/scratch", "local")),
    "pull_request": lambda: render_system_prompt(DOCKER, tools=TOOL_NAMES, **LIMITS, is_pull_request=True),
    "offline": lambda: render_system_prompt(
        SandboxDescription("/workspace", "/tmp/scratch", "docker"),
        tools=["run_shell", "browse", "plan", "finish"],
        max_steps=1_000,
        max_repairs=1,
    ),
    "open": lambda: render_system_prompt(
        SandboxDescription("/workspace", "/tmp/scratch", "docker", "open", ALL_FEATURES),
        tools=[*TOOL_NAMES, "browse", "use_browser"],
        **LIMITS,
    ),
    "browsing": lambda: render_system_prompt(DOCKER, tools=[*TOOL_NAMES, "browse"], **LIMITS),
    "question": lambda: render(
        "prompts/explain_system.md.j2", **vars(DOCKER), max_length=MAX_REPORT, is_pull_request=False
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_system_prompt_equals_its_golden_file(name: str) -> None:
    """`script/regenerate` renews the files."""
    path, text = GOLDEN / f"{name}.md", VARIANTS[name]()
    if os.environ.get("PATCHWRIGHT_REGENERATE"):
        path.write_text(text)
    assert text == path.read_text()


def test_every_variant_has_a_golden_file_of_its_own() -> None:
    assert {path.stem for path in GOLDEN.glob("*.md")} == set(VARIANTS)
    assert len({path.read_text() for path in GOLDEN.glob("*.md")}) == len(VARIANTS)


def test_the_variants_use_every_branch_of_the_template() -> None:
    """Each text between two tags of the template is part of at least one golden file."""
    template = (Path(__file__).parents[2] / "templates/prompts/system.md.j2").read_text()
    golden = "\n".join(path.read_text() for path in GOLDEN.glob("*.md"))
    texts = [" ".join(text.split()) for text in re.split(r"\{[{%].*?[%}]\}", template, flags=re.DOTALL)]
    assert [text for text in texts if text and text not in " ".join(golden.split())] == []


def test_the_system_prompt_describes_every_skill_where_the_python_session_is_offered() -> None:
    offered, other = (render_system_prompt(DOCKER, tools=tools) for tools in (["run_python"], ["run_shell"]))
    for name in skills.__all__:
        sentence = getattr(skills, name).__doc__.strip().split(". ")[0].splitlines()[0].rstrip(".")
        (line,) = re.findall(rf"^  {name}\(.*$", offered, re.MULTILINE)
        assert line.endswith(f": {sentence}.") and f"{name}(" not in other


def test_a_skill_whose_feature_is_off_is_not_in_the_system_prompt() -> None:
    sandbox = SandboxDescription("/workspace", "/tmp/scratch", "docker", features=("kernel",))
    prompt = render_system_prompt(sandbox, tools=["run_python"])
    assert {name for name in skills.__all__ if f"  {name}(" not in prompt} == {*skills.NEED_DOCUMENTS}
