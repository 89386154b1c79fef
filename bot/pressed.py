"""A button of a run's page, on its way to the desk: the road that a comment's command takes, for that run alone."""

from datetime import datetime
from typing import Literal

from bot.webhooks.triggers import Wish
from resolver.domain import Job, JobId, Repo, RunId, User
from resolver.request.request import request
from runtime.frozen import Frozen

EVENT = "patchwright_button"
"""In the place of GitHub's event. No delivery has it: the receiver takes only events that it knows by name."""


class Pressed(Frozen):
    """Somebody pressed a button on a run's page."""

    id: JobId
    """Of this very page's button, as that of a trigger: pressed twice, it is one press."""
    run: RunId
    """Whose page it was."""
    verb: Literal["stop", "retry"]
    repo: Repo
    number: int
    by: User | None
    """None: the operator, who needs nobody's permission."""
    at: datetime

    def wish(self) -> Wish:
        """What a comment would ask with the same word."""
        job = Job(
            id=self.id,
            repo=self.repo,
            number=self.number,
            requester=self.by,
            command=self.verb,
            again=self.run if self.verb == "retry" else None,
        )
        return Wish(job, request(self.verb), self.at, ())
