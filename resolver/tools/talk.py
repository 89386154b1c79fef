"""The tools that the program answers by itself."""

from resolver import prose
from resolver.actions import Ask, Finish, Plan, Think
from resolver.tools.tool import ActionTool, Tool
from runtime.observations import Noted


def talk_tools(*, reviewed: bool = True) -> tuple[Tool, ...]:
    """Think, plan, ask and finish. That the last two end the run is the agent's doing, not the tool's.

    `reviewed`: the work is on a pull request, whose review threads are answered; else nothing is said of them.
    """
    finish = ActionTool(Finish, _finish)
    if not reviewed:
        properties = {
            key: field for key, field in finish.spec.parameters["properties"].items() if key != "answers"
        }
        finish.spec = finish.spec.model_copy(
            update={"parameters": finish.spec.parameters | {"properties": properties}}
        )
    return (
        ActionTool(Think, _note),
        ActionTool(Plan, _plan),
        ActionTool(Ask, _ask),
        finish,
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
