"""The command `help`: lists the commands."""

from patchwright.bot.comment_texts import help_text
from patchwright.bot.triggers.command_context import CommandContext, ServerContext


async def handle(context: CommandContext) -> None:
    triggers, in_workflow = context.triggers, not isinstance(context, ServerContext)
    await context.reply(help_text(triggers.mention, triggers.label, in_workflow=in_workflow))
