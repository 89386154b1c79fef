"""Tools that need no sandbox: think, plan, ask and finish."""

from patchwright.resolver.rendering.template_renderer import render_prompt
from patchwright.resolver.tool_actions.control_actions import Ask, Finish, Plan, Think
from patchwright.resolver.tools.tool import ActionTool, Tool
from patchwright.runtime.observations import Acknowledgment


def build_control_tools(*, has_review_threads: bool = True) -> tuple[Tool, ...]:
    """Returns the think, plan, ask and finish tools. After an accepted call of ask or finish, the agent ends
    the run.

    If the work is not on a pull request, `has_review_threads` is False. In that case, the finish tool has no
    field for replies to review threads.
    """
    finish = ActionTool(Finish, _handle_finish)
    if not has_review_threads:
        finish.spec = finish.spec.without_field("thread_replies")
    return (
        ActionTool(Think, _handle_think),
        ActionTool(Plan, _handle_plan),
        ActionTool(Ask, _handle_ask),
        finish,
    )


async def _handle_think(action: Think) -> Acknowledgment:
    return Acknowledgment(text="Noted.")


async def _handle_plan(action: Plan) -> Acknowledgment:
    open_items = sum(item.status in ("open", "doing") for item in action.items)
    return Acknowledgment(text=f"Noted: {open_items} of {len(action.items)} left.")


async def _handle_ask(action: Ask) -> Acknowledgment:
    return Acknowledgment(text=render_prompt("question_accepted.md.j2"))


async def _handle_finish(action: Finish) -> Acknowledgment:
    return Acknowledgment(text=render_prompt("finish_accepted.md.j2"))
