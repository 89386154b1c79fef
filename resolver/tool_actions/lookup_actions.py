"""The actions that look something up outside the sandbox: search the web, read a skill, and describe a tool."""

from typing import Any, Literal

from pydantic import Field

from patchwright.runtime.tool_action import CallDescription, ToolAction


class SearchWeb(ToolAction):
    """Search the web with a search provider; returns titles, addresses and snippets that nobody has verified.

    Use it for facts that the repository and the issue do not contain: the meaning of an error message, a
    specification, the behavior of a version of a dependency. Search first, then open a page from the results
    instead of guessing an address. Rely on the page, not on its snippet. The query leaves this machine, so
    put no private code into it.
    """

    kind: Literal["search_web"] = "search_web"
    query: str = Field(
        min_length=2,
        max_length=400,
        description="A few words, as for a search engine; at most 400 characters.",
    )

    def describe(self) -> CallDescription:
        return CallDescription(
            kind="read",
            title=f"search the web: {self.query}",
            verb="searching the web for",
            target=self.query,
            risk_reason="the call acts outside the work tree",
        )


class ReadSkill(ToolAction):
    """Read instructions that the maintainers of this repository wrote for one kind of work, or for one
    directory.

    The first message lists these instructions. Read those that fit your task before you start.
    """

    kind: Literal["read_skill"] = "read_skill"
    name: str = Field(max_length=300, description="The skill's name, or the path of its file.")
    line: int = Field(
        default=1,
        ge=1,
        description="Line to start from. If the text continues, the earlier result names this line.",
    )

    def describe(self) -> CallDescription:
        return CallDescription(
            kind="read", title=f"read the skill {self.name}", verb="reading the skill", target=self.name
        )


class UseTool(ToolAction):
    """Call a further tool by its name. Without `arguments`, it shows the fields of the tool.

    A call with arguments becomes the action of the named tool, so the log contains this action only without them.
    """

    kind: Literal["use_tool"] = "use_tool"
    name: str = Field(max_length=100, description="Name of the further tool.")
    arguments: dict[str, Any] | None = Field(default=None, description="The fields of the further tool.")

    def describe(self) -> CallDescription:
        return CallDescription(
            kind="read",
            title=f"look up the tool {self.name}",
            verb="looking up the tool",
            target=self.name,
        )
