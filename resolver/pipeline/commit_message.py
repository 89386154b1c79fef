"""Lets the micro agent `commit-writer` write the message of a commit from the diff."""

import json
import logging

from patchwright.resolver.activity.summary import summarize_run
from patchwright.resolver.delegation.delegate_tool import StructuredReportTool
from patchwright.resolver.domain import Patch
from patchwright.resolver.errors import ModelError
from patchwright.resolver.events import AuxiliaryModelCall, Trajectory
from patchwright.resolver.llm.model import SystemMessage, UserMessage
from patchwright.resolver.rendering.template_renderer import render
from patchwright.resolver.run.dependencies import RunDependencies
from patchwright.resolver.run_log import RunLog
from patchwright.resolver.skills.other_skills import find_micro_agent
from patchwright.resolver.skills.skills import RepoSkills
from patchwright.resolver.text.untrusted import quote, strip_hidden
from patchwright.resolver.tool_actions.control_actions import Report
from patchwright.resolver.tools.tool import ToolRegistry
from patchwright.runtime.frozen_model import FrozenModel

logger = logging.getLogger(__name__)

NAME = "commit-writer"
MAX_DIFF = 60_000  # characters of the diff that the model sees
MAX_REQUEST = 10_000  # characters of the issue that the model sees


class CommitMessage(FrozenModel, extra="ignore"):
    """The output of the micro agent."""

    subject: str
    body: str = ""


async def write_commit_message(log: RunLog, deps: RunDependencies, skills: RepoSkills, patch: Patch) -> None:
    """Asks the model for a message and logs the reply. A repository can define its own micro agent of this name.

    It is called before the result is published, because a workflow publishes in a job without a model.
    """
    started, agent = log.trajectory.run_started, find_micro_agent(skills, NAME)
    if patch.is_empty or started is None or agent is None or agent.form is None:
        return
    summary = summarize_run(log.trajectory).finish
    task = {
        "diff": deps.secrets.mask(patch.diff.decode(errors="replace"))[:MAX_DIFF],
        "request": f"{started.thread.title}\n\n{quote(started.thread.body, MAX_REQUEST).text}",
        "summary": f"{summary.cause}\n\n{summary.change}" if summary else "",
    }
    system = render("prompts/commit_writer.md.j2", text=strip_hidden(agent.text)[0])
    tools = ToolRegistry((StructuredReportTool(agent.form),))
    try:
        reply = await deps.models.condense.reply(
            (SystemMessage(text=system), UserMessage(text=json.dumps(task, ensure_ascii=False))), tools.specs
        )
    except ModelError as exc:
        logger.warning("commit message not written", extra={"error": str(exc)})
        if exc.usage is not None:
            await log.append(AuxiliaryModelCall(purpose="failed", usage=exc.usage))
        return
    actions = [tools.parse(call) for call in reply.tool_calls[:1]]
    text = next((action.text for action in actions if isinstance(action, Report)), "")
    await log.append(AuxiliaryModelCall(purpose="commit", usage=reply.usage, text=deps.secrets.mask(text)))


def find_commit_message(trajectory: Trajectory) -> CommitMessage | None:
    """Returns the latest message that the micro agent wrote, or None if there is none."""
    for event in reversed(tuple(trajectory)):
        if isinstance(event, AuxiliaryModelCall) and event.purpose == "commit":
            try:
                return CommitMessage.model_validate_json(event.text)
            except (
                ValueError
            ):  # The model wrote none, or the repository's own micro agent has another output.
                return None
    return None
