"""Tools of a run that began with a plan: before the go nothing is changed, and after it no plan is handed over."""

from collections.abc import Sequence
from typing import Any

from resolver.actions import Finish, Propose, Result
from resolver.request import planning_prose
from resolver.tools.sandboxed import EDITS
from resolver.tools.tool import ActionTool, Around, Tool
from runtime.observations import Failed, Noted

WAITING = frozenset(action.model_fields["kind"].default for action in (*EDITS, Finish))


class Held(Around):
    """A tool that is described as ever and refuses every call, with the same words."""

    def __init__(self, tool: Tool, why: str) -> None:
        super().__init__(tool)
        self._why = why

    async def answer(self, action: Any) -> Result:
        return Failed(reason="refused", message=self._why)


def until_go(tools: Sequence[Tool], *, planning: bool) -> tuple[Tool, ...]:
    """The same tools before and after the go, so that the conversation begins alike; those that must not be, held."""
    propose = ActionTool(Propose, _propose)
    if not planning:
        return (*tools, Held(propose, planning_prose.planned_already()))
    why = planning_prose.no_go_yet()
    return (*(Held(tool, why) if tool.kind in WAITING else tool for tool in tools), propose)


async def _propose(action: Propose) -> Noted:
    return Noted(text=planning_prose.propose_noted())
