"""Executes the commands that need no run, and contains what their handlers can use."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from patchwright.bot.github.start_labels import StartLabels
from patchwright.bot.jobs import Answered, JobQueue
from patchwright.bot.thread_forge import CommentForge, ThreadForge
from patchwright.bot.triggers.cancellation import CancellationHandler
from patchwright.bot.triggers.check_monitor import CheckMonitor
from patchwright.bot.triggers.queue_notice import QueueNotices
from patchwright.bot.webhooks.triggers import TriggerRequest, Triggers
from patchwright.resolver.authorization import Permission, get_permission, is_authorized
from patchwright.resolver.domain import Job, JobId, Rejected, Repo
from patchwright.resolver.errors import Forbidden, ForgeError, NotFound
from patchwright.resolver.publishing import reply_texts
from patchwright.resolver.request import plan_texts

log = logging.getLogger(__name__)

# How long a reaction may take. A reaction that appears later would only confuse people.
REACTION_TIMEOUT_SECONDS = 60.0


class RefusalLimit(Protocol):
    """Limits the replies to people without write access, who could flood a thread. May raise QueueDown."""

    async def allow_refusal(self, repo: Repo, number: int, job: JobId) -> bool:
        """Returns True if the bot may reply to this request. Several calls for the same request return the same
        result.
        """


class FindRejection(Protocol):
    """Finds commands that would have no effect, before a run is started for them. May raise ForgeError."""

    async def __call__(self, job: Job, *, has_active_run: bool) -> str | None:
        """Returns a text for the requester that says why the command would have no effect. Returns None if a
        run must be started to find out.
        """


@dataclass(frozen=True)
class TriggerServices:
    """What a TriggerHandler uses besides the queue and GitHub's threads."""

    cancellation: CancellationHandler
    """Cancels jobs whose label was removed, or whose issue or pull request was closed."""
    queue_notices: QueueNotices
    """Posts notices about queued jobs."""
    refusals: RefusalLimit
    """Limits the replies to people without write access."""
    checks: CheckMonitor | None = None
    """Processes completed checks on the bot's pull requests. If it is None, completed checks are ignored."""
    labels: StartLabels | None = None
    """Creates the label in new repositories. If it is None, no label is created."""
    find_rejection: FindRejection | None = None
    """Finds commands that need no run. If it is None, this check is skipped."""


class CommandContext:
    """One request. This class serves workflows, which have no queue and cannot reach other runs."""

    is_workflow = True

    def __init__(
        self, trigger: TriggerRequest, triggers: Triggers, forge: CommentForge, server_url: str
    ) -> None:
        """`server_url` is the URL of GitHub."""
        self.trigger, self.triggers, self.job = trigger, triggers, trigger.job
        self.workflow_runs_url = f"{server_url}/{self.job.repo}/actions"
        self._forge = forge
        self._permission: Permission | None = None
        self.rejection = ""
        """Why nothing was done, if the command was rejected in a workflow."""

    async def execute(self) -> bool:
        """Executes a command that needs no run. Rejects an invalid command, or one that is not permitted.

        Returns False if the request needs a run; the permission is then not checked yet. May raise ForgeError.
        """
        request = self.job.request
        command = request.command
        if command.starts_run and request.error is None:
            return False
        if command.needs_write_access and not await self.is_permitted():
            explanation = reply_texts.render_rejection_reason(
                "permission", self.job, self.triggers.label, is_workflow=self.is_workflow
            )
            await self.reject(explanation)
        elif command.starts_run and request.error is not None:
            await self.reject(plan_texts.render_invalid_command(request.error))
        else:
            # The module is found by its name, so that a new command changes no other module.
            await import_module(f"{__package__}.{command.verb}_command").handle(self)
        return True

    async def is_permitted(self) -> bool:
        return is_authorized(await self.get_permission())

    async def get_permission(self) -> Permission:
        """Returns the requester's permission. GitHub is asked only once. May raise ForgeError."""
        if self._permission is None:
            self._permission = await get_permission(self._forge, self.job.repo, self.job.requester)
        return self._permission

    async def reply(self, text: str) -> None:
        """Posts the text and completes the request. May raise ForgeError."""
        await self._forge.upsert_comment(self.job.repo, self.job.number, self.job.id, text)

    async def reject(self, explanation: str) -> None:
        """Posts why nothing is done and completes the request. May raise ForgeError."""
        self.rejection = explanation
        await self.reply(reply_texts.render_rejection(explanation))


class ServerContext(CommandContext):
    """A request to a server."""

    is_workflow = False

    def __init__(
        self,
        trigger: TriggerRequest,
        triggers: Triggers,
        forge: ThreadForge,
        queue: JobQueue,
        services: TriggerServices,
        run_in_background: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        super().__init__(trigger, triggers, forge, "")
        self.queue, self.services = queue, services
        self._thread_forge, self._run_in_background = forge, run_in_background

    async def reply(self, text: str) -> None:
        await self._post(text)
        await self.queue.complete(self.job, Answered())

    async def reject(self, explanation: str) -> None:
        await self._post(reply_texts.render_rejection(explanation))
        await self.queue.complete(self.job, Rejected(explanation=explanation))

    async def _post(self, text: str) -> None:
        job, permission = self.job, await self.get_permission()
        # In a private repository, a requester without permission cannot see the thread.
        if permission == "none" or (
            not is_authorized(permission)
            and not await self.services.refusals.allow_refusal(job.repo, job.number, job.id)
        ):
            log.warning("reply withheld", extra={"job": job.id, "reason": text.strip()})
            return
        try:
            await super().reply(text)
        except (Forbidden, NotFound) as exc:  # The thread is locked or deleted, so a retry would not help.
            log.warning("reply not posted", extra={"job": job.id, "reason": str(exc)})

    def react(self) -> None:
        """Adds a reaction in the background. Failures are only logged."""
        if self.trigger.resource_path:
            self._run_in_background(self._react())

    async def _react(self) -> None:
        try:
            async with asyncio.timeout(REACTION_TIMEOUT_SECONDS):
                await self._thread_forge.react(self.job.repo, self.trigger.resource_path)
        except (ForgeError, TimeoutError) as exc:
            log.warning("reaction not added", extra={"job": self.job.id, "reason": str(exc)})
