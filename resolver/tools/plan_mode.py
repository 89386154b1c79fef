"""Restricts the tools of a run whose plan needs approval. Before the approval, edits are blocked. After the
approval, new plans are blocked.
"""

from collections.abc import Sequence
from typing import Any

from patchwright.resolver.actions import AnyObservation
from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.tool_actions.control_actions import ProposePlan
from patchwright.resolver.tools.sandbox_tools import EDIT_TOOLS
from patchwright.resolver.tools.tool import ActionTool, Tool, WrapperTool
from patchwright.runtime.observations import Acknowledgment, ActionFailure

BLOCKED_KINDS = EDIT_TOOLS | {"finish"}


class BlockedTool(WrapperTool):
    """Wraps a tool. The tool description stays the same, but every call is refused with one fixed message."""

    def __init__(self, tool: Tool, reason: str) -> None:
        super().__init__(tool)
        self._reason = reason

    async def execute(self, action: Any) -> AnyObservation:
        return ActionFailure(reason="refused", message=self._reason)


def apply_plan_mode(tools: Sequence[Tool], *, planning: bool) -> tuple[Tool, ...]:
    """Blocks the tools that the run must not use now. If `planning` is True, the plan is not approved yet,
    and the tools that edit are blocked. If it is False, the plan is approved, and the tool that proposes a
    plan is blocked.

    The tool definitions are the same before and after the approval, so the cached prompt prefix stays valid.
    """
    propose = ActionTool(ProposePlan, _handle_propose)
    if not planning:
        return (*tools, BlockedTool(propose, render_prompt("plan_already_approved.md.j2")))
    reason = render_prompt("plan_not_approved.md.j2")
    return (*(BlockedTool(tool, reason) if tool.kind in BLOCKED_KINDS else tool for tool in tools), propose)


async def _handle_propose(action: ProposePlan) -> Acknowledgment:
    return Acknowledgment(text=render_prompt("plan_accepted.md.j2"))
