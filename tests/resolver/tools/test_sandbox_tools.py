"""The prompt describes the tools of a sandbox's features only if they are available."""

import pytest

from patchwright.resolver.prompts.system_prompt import SandboxDescription, render_system_prompt
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.egress_policy import NetworkMode
from patchwright.runtime.features import ALL_FEATURES
from tests.resolver.agent_runs import FakeSandbox


def names(*plugins: str) -> list[str]:
    found = build_sandbox_tools(FakeSandbox(), tuple(plugin for plugin in ALL_FEATURES if plugin in plugins))
    return [spec.name for spec in ToolRegistry(found).specs]


def test_python_is_offered_if_the_kernel_is_available() -> None:
    assert "run_python" not in names("browser", "documents")
    assert set(names("kernel")) - set(names()) == {"run_python"}


@pytest.mark.parametrize("tool", ["ask", "read_skill", "plan", "browse"])
def test_a_tool_is_mentioned_only_if_it_is_offered(tool: str) -> None:
    assert f"`{tool}`" not in render_system_prompt(SandboxDescription("/w", "/s", "docker"))
    assert f"`{tool}`" in render_system_prompt(SandboxDescription("/w", "/s", "docker"), tools=(tool,))


def test_the_system_prompt_states_how_often_a_failed_patch_comes_back() -> None:
    for count, expected in (
        (0, "the packages that you install"),
        (1, "at most once."),
        (3, "at most 3 times."),
    ):
        prompt = render_system_prompt(SandboxDescription("/w", "/s", "docker", "open"), max_repairs=count)
        assert expected in prompt and ("you learn why and continue" in prompt) == (count > 0)


def test_the_system_prompt_forbids_weakening_tests() -> None:
    assert "Never delete, skip or weaken a test." in render_system_prompt(
        SandboxDescription("/w", "/s", "docker")
    )


@pytest.mark.parametrize(
    ("network", "reach"),
    [
        ("none", "can open only pages that you serve here yourself"),
        ("allowlist", "can open the hosts that the sandbox may reach"),
        ("open", "can open public sites"),
    ],
)
def test_the_system_prompt_states_what_the_browser_can_reach(network: NetworkMode, reach: str) -> None:
    assert reach in render_system_prompt(SandboxDescription("/w", "/s", "docker", network), tools=("browse",))


def test_on_a_local_machine_the_browser_is_for_local_pages() -> None:
    text = render_system_prompt(SandboxDescription("/w", "/s", "local", "open"), tools=("browse",))
    assert "can open only pages that you serve here yourself" in text and "public" not in text


def test_on_a_pull_request_the_prompt_states_the_test_baseline() -> None:
    of_issue, of_pull = (
        render_system_prompt(SandboxDescription("/w", "/s", "docker"), is_pull_request=reviewed)
        for reviewed in (False, True)
    )
    assert "a test that failed passes" in of_issue
    assert "at least one test" not in of_pull and "No test that passed before may fail." in of_pull
