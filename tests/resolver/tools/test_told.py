"""What the model hears of the tools that a sandbox has by its plugins, and only then."""

import pytest

from resolver import prose
from resolver.tools.sandboxed import sandbox_tools
from resolver.tools.tool import Tools
from runtime.egress.egress import Network
from runtime.plugins import PLUGINS
from tests.resolver.agents import Box


def names(*plugins: str) -> list[str]:
    found = sandbox_tools(Box(), tuple(plugin for plugin in PLUGINS if plugin in plugins))
    return [spec.name for spec in Tools(found).specs]


def test_python_is_offered_where_the_kernel_is() -> None:
    assert "run_python" not in names("browser", "documents")
    assert set(names("kernel")) - set(names()) == {"run_python"}


def test_the_system_prompt_speaks_of_a_tool_only_where_it_is() -> None:
    plain = prose.system("/w", "/s", "docker")
    assert "run_python" not in plain and "browse" not in plain
    both = prose.system("/w", "/s", "docker", plugins=("kernel", "browser"))
    assert "`run_python`" in both and "`browse`" in both
    assert "run_python" not in prose.system("/w", "/s", "docker", plugins=("browser",))


@pytest.mark.parametrize(
    ("network", "reach"),
    [
        ("none", "reaches only what you serve here yourself"),
        ("allow-list", "reaches the hosts that the sandbox may reach"),
        ("open", "reaches public sites"),
    ],
)
def test_it_says_how_far_the_browser_reaches(network: Network, reach: str) -> None:
    assert reach in prose.system("/w", "/s", "docker", network, ("browser",))


def test_on_somebodys_own_machine_the_browser_is_for_pages_served_there() -> None:
    said = prose.system("/w", "/s", "local", "open", ("browser",))
    assert "reaches only what you serve here yourself" in said and "public" not in said


def test_on_a_pull_request_it_says_by_what_the_tests_judge_there() -> None:
    of_issue, of_pull = (prose.system("/w", "/s", "docker", reviewed=reviewed) for reviewed in (False, True))
    assert "at least one test that fails on the starting code passes with the patch" in of_issue
    assert "at least one test" not in of_pull and "None that passed before may fail." in of_pull
