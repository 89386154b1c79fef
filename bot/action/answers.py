"""What a workflow answers by itself: commands that a server carries out, and slips."""

from collections.abc import Awaitable, Callable

from bot.lifecycle import Talker
from bot.webhooks.triggers import Triggers
from bot.words import helped, not_stopped_here
from resolver import prose
from resolver.domain import Job
from resolver.forge import MAY_TRIGGER
from resolver.request import planning_prose

Answer = Callable[[Job], Awaitable[bool]]
"""Whether a job was answered, so that there is nothing to be worked on. May raise ForgeError."""


def answering(speaker: Talker, rules: Triggers, server_url: str) -> Answer:
    """`stop` cannot reach another workflow run, and `help` takes none."""

    async def answer(job: Job) -> bool:
        asked = job.asked
        if asked.verb == "help":
            await speaker.say(job.repo, job.number, job.id, helped(rules.mention, rules.label))
            return True
        if asked.unclear:
            text = prose.refused(planning_prose.unclear(asked.unclear))
        elif asked.verb == "stop":
            text = not_stopped_here(f"{server_url}/{job.repo}/actions")
        else:
            return False
        if job.requester is None or await speaker.permission(job.repo, job.requester) not in MAY_TRIGGER:
            text = prose.refused(prose.refusal("permission", job))
        await speaker.say(job.repo, job.number, job.id, text)
        return True

    return answer


async def nothing_answered(job: Job) -> bool:
    """Everything is work."""
    return False
