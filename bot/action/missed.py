"""What a workflow on a schedule works on: what was asked for in its repository, and nobody has answered."""

from datetime import UTC, datetime, timedelta

from bot.github.forge import GitHubForge
from bot.reconcile.looking import Looking
from bot.webhooks.delivery import Delivery, Ignored
from bot.webhooks.triggers import Triggers, job_for, names_of
from resolver.domain import Repo

SCHEDULED = frozenset({"schedule", "workflow_dispatch"})
LOOK_BACK = timedelta(
    days=3
)  # as far as GitHub itself keeps deliveries; longer lists cost more than they find


async def missed(github: GitHubForge, repo: Repo, rules: Triggers, grace: timedelta) -> Delivery:
    """The oldest delivery that should have been, without an answer of ours; Ignored when there is none.

    `grace`: how long a workflow may be at work before it answers. Raises ForgeError.
    """
    now = datetime.now(UTC)
    looking = Looking(github.rest, github.identity, (repo,))
    for place in await looking.places.listed():
        if str(place.repo).lower() != str(repo).lower():
            continue
        seen = await looking.look(place, now - LOOK_BACK, "", rules.label)
        for one in sorted(seen.happened, key=lambda one: one.at) if seen else ():
            job = job_for(one.told, rules)
            if job and one.at + grace <= now and seen and not {*names_of(one.told, job)} & seen.ours.keys():
                return one.told
    return Ignored(event="schedule")
