"""A button of the page, on its way to the desk: the same road that a comment's command takes."""

from datetime import datetime
from typing import Literal

from bot.webhooks.triggers import Wish
from resolver.domain import Job, JobId, Repo, User
from resolver.request import request
from runtime.frozen import Frozen

EVENT = "patchwright_button"
"""In the place of GitHub's event. No delivery has it: the receiver takes only events that it knows by name."""


class Pressed(Frozen):
    """Somebody pressed a button on a run's page."""

    id: JobId
    """Of this very press, as that of a trigger."""
    verb: Literal["stop", "retry"]
    repo: Repo
    number: int
    by: User | None
    """None: the operator, who needs nobody's permission."""
    at: datetime

    def wish(self) -> Wish:
        """What a comment would ask with the same word."""
        job = Job(id=self.id, repo=self.repo, number=self.number, requester=self.by, command=self.verb)
        return Wish(job, request(self.verb), self.at, ())
