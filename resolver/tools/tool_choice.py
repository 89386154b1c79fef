"""Chooses the tools whose schemas are part of each request, from the issue and the repository.

The other tools remain available through `use_tool`. The choice is made once, because a change of the tools during
a run would invalidate the provider's prompt cache.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from patchwright.resolver.domain import Thread
from patchwright.resolver.text.untrusted import strip_hidden
from patchwright.resolver.tools.further_tools import USE_TOOL
from patchwright.resolver.tools.tool import Tool

ALWAYS_OFFERED = frozenset(
    """run_shell view_file replace_text finish report propose_plan read_skill""".split()
)
"""Tools that nearly every run uses. `read_skill` exists only if there is something to read."""

MAX_ADDED_SCHEMAS = 4_000  # characters of the schemas of added tools, up to which all of them are offered
MIN_POINTS = 4  # list items of the issue from which on the agent should keep a list, too

_LINK_OR_PICTURE = re.compile(r"https?://|!\[|<img\b", re.IGNORECASE)
_LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d{1,2}[.)])\s+\S", re.MULTILINE)
_INTERACTION = re.compile(r"\b(?:stdin|tty|repl|pdb|debugger|interactive(?:ly)?|input\(\)|prompts?)\b", re.I)
_FRONT_END = re.compile(r".*\.(?:tsx|jsx|vue|svelte|css|scss|html)", re.IGNORECASE)
_NO_FRONT_END = re.compile(r"(?:^|/)(?:tests?|docs?|examples?|fixtures)(?:[-_.][^/]*)?/", re.IGNORECASE)
_PAGE = re.compile(r"\b(?:browser|page|button|css|layout|screen|click\w*|render\w*)\b", re.IGNORECASE)


@dataclass(frozen=True)
class RunFacts:
    """What is known about a run before its first request."""

    text: str
    """The visible text of the issue, its comments and the request."""
    files: Sequence[str]
    has_forge: bool
    """True if people can answer in the thread of the issue."""

    @classmethod
    def collect(cls, thread: Thread, request: str, files: Sequence[str]) -> "RunFacts":
        # Text that nobody sees on the page chooses no tools.
        texts = (thread.title, thread.body, request, *(comment.body for comment in thread.comments))
        return cls("\n".join(strip_hidden(text)[0] for text in texts), files, bool(thread.url))


@dataclass(frozen=True)
class ToolRule:
    """A cause to offer a tool from the first request on."""

    tool: str
    cause: str
    applies: Callable[[RunFacts], bool]


RULES = (
    ToolRule("browse", "a link or a picture", lambda facts: bool(_LINK_OR_PICTURE.search(facts.text))),
    ToolRule(
        "browse", "an issue about a page of the repository's front end", lambda facts: _is_front_end(facts)
    ),
    ToolRule("run_python", "a notebook", lambda facts: any(file.endswith(".ipynb") for file in facts.files)),
    ToolRule(
        "plan", "a long list of points", lambda facts: len(_LIST_ITEM.findall(facts.text)) >= MIN_POINTS
    ),
    ToolRule("ask", "people who can answer", lambda facts: facts.has_forge),
    ToolRule(
        "send_input", "a program that asks for input", lambda facts: bool(_INTERACTION.search(facts.text))
    ),
)


def choose_tools(tools: Sequence[Tool], facts: RunFacts) -> frozenset[str]:
    """Returns the names of the tools to offer in each request.

    Tools that the operator or the repository has added are offered if their schemas are short: somebody added them
    for these runs.
    """
    added = [tool.spec for tool in tools if tool.kind in ("call_tool", "search_web")]
    is_short = sum(len(json.dumps(spec.to_openai_tool())) for spec in added) <= MAX_ADDED_SCHEMAS
    caused = {rule.tool for rule in RULES if rule.applies(facts)}
    names = {tool.spec.name for tool in tools}
    # Only some operators let the main agent use the browser itself. The causes are the same.
    own_browser = names & {"use_browser"}
    # An answer names the lines of the code that show it.
    search = {"search_code"} if "report" in names else ()
    return ALWAYS_OFFERED.union(
        caused,
        own_browser if "browse" in caused else (),
        search,
        (spec.name for spec in added if is_short),
    )


def read_offered_tools(recorded: Sequence[dict[str, Any]]) -> frozenset[str] | None:
    """Returns the tools that a run has offered so far, from its recorded tool schemas. None means all tools: the run
    began without `use_tool`.
    """
    names = {schema["function"]["name"] for schema in recorded}
    return frozenset(names) if USE_TOOL in names else None


def _is_front_end(facts: RunFacts) -> bool:
    return bool(_PAGE.search(facts.text)) and any(
        _FRONT_END.fullmatch(file) and not _NO_FRONT_END.search(file) for file in facts.files
    )
