"""Comments that are heard as a server hears them, and worked on in this process."""

from bot.webhooks.delivery import read
from bot.webhooks.triggers import Triggers, job_for
from demo.world import Issue, Pull
from resolver.domain import Job, Refused
from tests.stories.conftest import Scene


async def comment(scene: Scene, text: str, by: str = "maintainer", on: Issue | Pull | None = None) -> Job:
    """What a person's comment asks for."""
    scene.world.hook("http://127.0.0.1:9/nobody", "none")
    delivery = await scene.world.comment(on or scene.issue, text, by=by)
    job = job_for(read("issue_comment", delivery.body), Triggers())
    assert job is not None
    return job


async def answered(scene: Scene, text: str, by: str = "maintainer") -> str:
    """What the bot says to a comment that it does not work on."""
    outcome = await scene.resolve(await comment(scene, text, by))
    assert isinstance(outcome, Refused), outcome
    return scene.comments[-1].strip()
