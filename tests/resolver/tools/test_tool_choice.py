"""The tools whose schemas each request contains follow from the issue and the repository."""

import pytest

from patchwright.resolver.browsing.browser_options import DEFAULT_OPTIONS, BrowserTool
from patchwright.resolver.delegation.delegate_tool import build_report_tools
from patchwright.resolver.domain import Comment, Issue, User
from patchwright.resolver.events import SystemPrompt
from patchwright.resolver.llm.model import ToolSpec
from patchwright.resolver.llm.prompt_fingerprint import tool_schemas
from patchwright.resolver.tool_actions.unchecked_actions import CallTool
from patchwright.resolver.tools.control_tools import build_control_tools
from patchwright.resolver.tools.sandbox_tools import build_sandbox_tools
from patchwright.resolver.tools.tool import ActionTool, Tool, ToolRegistry
from patchwright.resolver.tools.tool_choice import (
    ALWAYS_OFFERED,
    MAX_ADDED_SCHEMAS,
    RULES,
    RunFacts,
    choose_tools,
    read_offered_tools,
)
from patchwright.runtime.features import ALL_FEATURES
from patchwright.runtime.observations import TextResult
from tests.resolver.agent_runs import FakeSandbox

AUTHOR = User(id=1, login="reporter")
TOOLS = (*build_sandbox_tools(FakeSandbox(), ALL_FEATURES), *build_control_tools())
POINTS = "Please:\n- rename it\n- move it\n- test it\n- document it\n"


def issue(body: str, url: str = "", *comments: str) -> Issue:
    remarks = tuple(Comment(author=AUTHOR, body=text, trusted=True) for text in comments)
    return Issue(
        number=7,
        title="Wrong sum",
        body=body,
        author=AUTHOR,
        trusted=True,
        open=True,
        url=url,
        comments=remarks,
    )


def added(body: str, *files: str, url: str = "", comment: str = "") -> set[str]:
    """Returns the tools that this issue adds to those that are always offered."""
    facts = RunFacts.collect(issue(body, url, comment), "", files)
    return set(choose_tools(TOOLS, facts) - ALWAYS_OFFERED)


@pytest.mark.parametrize(
    ("body", "files", "expected"),
    [
        ("`add(1, 2)` returns -1.", ("calc.py", "docs/index.html"), set()),
        ("See https://example.org/spec for the format.", (), {"browse"}),
        ("![the table](table.png)", (), {"browse"}),
        ("The save button does nothing.", ("web/Save.tsx",), {"browse"}),
        ("The save button does nothing.", ("calc.py",), set()),
        ("The save button does nothing.", ("web/docs/a.html", "tests_website/index.html"), set()),
        ("The example fails.", ("examples/plot.ipynb",), {"run_python"}),
        (POINTS, (), {"plan"}),
        (POINTS.replace("- document it\n", ""), (), set()),
        ("`setup` hangs if stdin is a TTY.", (), {"send_input"}),
        ("Fine.\n\n<!-- https://example.org stdin -->", (), set()),
    ],
)
def test_an_issue_or_a_repository_adds_the_tools_it_gives_a_cause_for(
    body: str, files: tuple[str, ...], expected: set[str]
) -> None:
    assert added(body, *files) == expected


def test_the_browser_is_offered_to_the_main_agent_for_the_same_causes() -> None:
    tools = (*TOOLS, BrowserTool(FakeSandbox(), DEFAULT_OPTIONS))
    for body, is_offered in (("See https://example.org/spec.", True), ("`add(1, 2)` returns -1.", False)):
        chosen = choose_tools(tools, RunFacts.collect(issue(body), "", ()))
        assert [name in chosen for name in ("browse", "use_browser")] == [is_offered, is_offered]


def test_a_question_can_be_asked_at_once_if_people_can_answer_in_the_thread() -> None:
    assert added("Wrong.", url="https://forge.test/o/r/issues/7") == {"ask"}


def test_a_question_about_the_code_offers_the_search() -> None:
    tools = (*TOOLS, *build_report_tools())
    assert "search_code" in choose_tools(tools, RunFacts.collect(issue("Why?"), "", ()))


def test_comments_give_causes_too() -> None:
    assert added("Wrong.", comment="It asks for a prompt.") == {"send_input"}


def test_each_rule_is_about_a_tool_that_exists_and_names_its_cause() -> None:
    names = {tool.spec.name for tool in TOOLS} | {"browse"}
    assert {rule.tool for rule in RULES} <= names and all(rule.cause for rule in RULES)


@pytest.mark.parametrize(("length", "is_offered"), [(10, True), (MAX_ADDED_SCHEMAS, False)])
def test_added_tools_are_offered_if_their_schemas_are_short(length: int, is_offered: bool) -> None:
    async def answer(action: object) -> TextResult:
        raise NotImplementedError

    tool = ActionTool(CallTool, answer)
    tool.spec = ToolSpec(name="tickets_search", description="x" * length, parameters={"type": "object"})
    tools: tuple[Tool, ...] = (*TOOLS, tool)
    chosen = choose_tools(tools, RunFacts.collect(issue("Wrong."), "", ()))
    assert ("tickets_search" in chosen) == is_offered


def test_a_resumed_run_offers_the_same_tools_as_before() -> None:
    chosen = choose_tools(TOOLS, RunFacts.collect(issue(POINTS), "", ()))
    first = ToolRegistry(TOOLS, chosen)
    recorded = SystemPrompt(text="", tools=tool_schemas(first.specs))
    assert ToolRegistry(TOOLS, read_offered_tools(recorded.tools)).specs == first.specs


def test_a_run_that_began_with_all_tools_keeps_them() -> None:
    everything = ToolRegistry(TOOLS)
    assert read_offered_tools(tool_schemas(everything.specs)) is None
