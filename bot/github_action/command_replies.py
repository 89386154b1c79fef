"""Replies to invalid commands, and to commands that a workflow does not execute."""

from collections.abc import Awaitable, Callable

from patchwright.bot.comment_texts import cannot_stop_workflow_text, help_text
from patchwright.bot.thread_forge import CommentForge
from patchwright.bot.webhooks.triggers import Triggers
from patchwright.resolver.authorization import authorize
from patchwright.resolver.domain import Job
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.request import plan_texts

CommandHandler = Callable[[Job], Awaitable[bool]]
"""Replies to a command in a comment. Returns True if it posted a reply, so that no run is needed. May raise
ForgeError.
"""


def build_command_handler(forge: CommentForge, triggers: Triggers, server_url: str) -> CommandHandler:
    """Returns a handler that replies to `help`, `stop` and invalid commands.

    The reply to `stop` only explains how to cancel, because a workflow run cannot cancel another one.
    """

    async def reply(job: Job) -> bool:
        request = job.request
        if request.verb == "help":
            text = help_text(triggers.mention, triggers.label, in_workflow=True)
            await forge.upsert_comment(job.repo, job.number, job.id, text)
            return True
        if request.error:
            text = reply_texts.render_rejection(plan_texts.render_invalid_command(request.error))
        elif request.verb == "stop":
            text = cannot_stop_workflow_text(f"{server_url}/{job.repo}/actions")
        else:
            return False
        if job.requester is None or not await authorize(forge, job.repo, job.requester):
            text = reply_texts.render_rejection(reply_texts.render_rejection_reason("permission", job))
        await forge.upsert_comment(job.repo, job.number, job.id, text)
        return True

    return reply


async def handle_no_command(job: Job) -> bool:
    """Sends no reply and returns False, so that the workflow starts a run for every command."""
    return False
