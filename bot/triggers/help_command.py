"""The command `help`: lists the commands."""

from patchwright.bot.triggers.command_context import CommandContext, ServerContext
from patchwright.resolver.comment_commands import COMMANDS
from patchwright.resolver.rendering.template_renderer import render_reply


async def handle(context: CommandContext) -> None:
    triggers, in_workflow = context.triggers, not isinstance(context, ServerContext)
    await context.reply(
        render_reply(
            "help.md.j2",
            commands=COMMANDS,
            mention=triggers.mention,
            label=triggers.label,
            in_workflow=in_workflow,
            workflow_runs_url=context.workflow_runs_url,
        )
    )
