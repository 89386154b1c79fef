"""Builds a tool from each micro agent. A micro agent is a file in the repository. The file describes a task
and contains schemas of the task's input and output.

Like all skills, these files are read from the base commit, so later edits have no effect on the tools.
"""

import json
import logging
from collections.abc import Collection, Sequence
from typing import Any, Literal

from patchwright.resolver.actions import SubagentResult
from patchwright.resolver.delegation.delegate_tool import DelegateTool
from patchwright.resolver.json_schemas import validation_error
from patchwright.resolver.llm.model import ToolSpec
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.skills.skills import RepoSkill
from patchwright.resolver.tool_actions.unchecked_actions import CallTool
from patchwright.resolver.tools.plan_mode import BlockedTool
from patchwright.resolver.tools.tool import Tool
from patchwright.runtime.observations import ActionFailure

logger = logging.getLogger(__name__)

MAX_INPUT_LENGTH = 10_000  # characters of JSON; the same limit as for a question to an investigator


class MicroAgentTool:
    """A tool that starts a micro agent. The micro agent runs as an investigator, which is a kind of subagent."""

    kind: Literal["call_tool"] = "call_tool"

    def __init__(self, skill: RepoSkill, delegate_tool: DelegateTool) -> None:
        assert skill.form is not None
        self._skill, self._form = skill, skill.form
        self._delegate_tool = delegate_tool
        self.spec = ToolSpec(
            name=f"ask_{skill.name}",
            description=render_prompt("micro_agent.md.j2", skill=skill),
            parameters=self._form.input,
        )

    def parse(self, arguments: dict[str, Any]) -> CallTool:
        if problem := validation_error(arguments, self._form.input):
            raise ValueError(problem)
        if (length := len(_format_task(arguments))) > MAX_INPUT_LENGTH:
            raise ValueError(
                f"the arguments are {length:,} characters long; the limit is {MAX_INPUT_LENGTH:,}"
            )
        return CallTool(name=self.spec.name, arguments=arguments)

    async def execute(self, action: CallTool) -> SubagentResult | ActionFailure:
        """Returns the micro agent's report. Raises the same errors as `DelegateTool.investigate`."""
        return await self._delegate_tool.investigate(action, (_format_task(action.arguments),), self._skill)


def build_micro_agent_tools(
    skills: Sequence[RepoSkill],
    delegate_tool: DelegateTool,
    used_names: Collection[str],
    *,
    is_planning: bool = False,
) -> tuple[Tool, ...]:
    """Returns one tool per micro agent. A micro agent is skipped with a warning if another tool has its
    name. While a run is planning, calls of micro agents that edit are refused.
    """
    tools: list[Tool] = []
    for skill in skills:
        tool: Tool = MicroAgentTool(skill, delegate_tool)
        if skill.edits and is_planning:
            tool = BlockedTool(tool, render_prompt("plan_not_approved.md.j2"))
        if tool.spec.name in used_names:
            logger.warning("micro agent skipped: tool name already taken", extra={"tool": tool.spec.name})
        else:
            tools.append(tool)
    return tuple(tools)


def _format_task(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments, ensure_ascii=False, allow_nan=False)
