"""The tools that the program answers by itself."""

from resolver import prose
from resolver.actions import Finish, Think
from resolver.tools.tool import ActionTool, Tool
from runtime.observations import Noted


def talk_tools() -> tuple[Tool, ...]:
    """Think and finish. That a finish ends the run is the agent's doing, not the tool's."""
    return (ActionTool(Think, _note), ActionTool(Finish, _finish))


async def _note(action: Think) -> Noted:
    return Noted(text="Noted.")


async def _finish(action: Finish) -> Noted:
    return Noted(text=prose.finish_noted())
