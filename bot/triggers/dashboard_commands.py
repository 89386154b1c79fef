"""Converts the commands `stop` and `retry` from the dashboard into trigger requests.

People give these commands with buttons on a run's page. A dashboard command works like the command of the same
name in a comment, but affects only one run.
"""

from datetime import datetime
from typing import Literal

from patchwright.bot.webhooks.triggers import TriggerRequest
from patchwright.resolver.command_parser import parse_request
from patchwright.resolver.domain import Job, JobId, Repo, RunId, User
from patchwright.runtime.frozen_model import FrozenModel

DASHBOARD_EVENT = "patchwright_button"
"""The event name of dashboard commands in the inbox. GitHub cannot send this event, because the receiver
accepts only known events.
"""


class DashboardCommand(FrozenModel):
    """A command that a person gave with a button on a run's page in the dashboard."""

    id: JobId
    """An id that differs each time the page is loaded, so that a double click sends only one command."""
    run: RunId
    """The run whose page contains the button."""
    verb: Literal["stop", "retry"]
    repo: Repo
    number: int
    requester: User | None
    """The user who pressed the button; None for the operator, who has every permission."""
    requested_at: datetime

    def to_trigger_request(self) -> TriggerRequest:
        """Returns the trigger request for this command."""
        job = Job(
            id=self.id,
            repo=self.repo,
            number=self.number,
            requester=self.requester,
            command=self.verb,
            retry_of=self.run if self.verb == "retry" else None,
        )
        return TriggerRequest(job, parse_request(self.verb), self.requested_at, ())
