"""The tools that the program answers by itself."""

from resolver import prose
from resolver.actions import Ask, Finish, Plan, Think
from resolver.tools.tool import ActionTool, Tool
from runtime.observations import Noted


def talk_tools() -> tuple[Tool, ...]:
    """Think, plan, ask and finish. That the last two end the run is the agent's doing, not the tool's."""
    return (
        ActionTool(Think, _note),
        ActionTool(Plan, _plan),
        ActionTool(Ask, _ask),
        ActionTool(Finish, _finish),
    )


async def _note(action: Think) -> Noted:
    return Noted(text="Noted.")


async def _plan(action: Plan) -> Noted:
    left = sum(item.state in ("open", "doing") for item in action.items)
    return Noted(text=f"Noted: {left} of {len(action.items)} left.")


async def _ask(action: Ask) -> Noted:
    return Noted(text=prose.ask_noted())


async def _finish(action: Finish) -> Noted:
    return Noted(text=prose.finish_noted())
