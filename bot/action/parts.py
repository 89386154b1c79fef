"""A workflow's step in its three parts: all of it; the work, by a job that may only read; the publishing after that."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Literal, NoReturn, Protocol

from bot import compose
from bot.action.answers import answering
from bot.action.missed import SCHEDULED, missed
from bot.action.step import no_page, run_action
from bot.credentials import own_secrets, secrets_of
from bot.progress import apologize, commenting, explained, silent
from bot.terminal.lines import Narrator
from bot.terminal.runs import PAGE, write_page
from bot.webhooks.triggers import Triggers
from bot.worker import Stopped
from resolver.delivery import parcel
from resolver.domain import Job, Outcome, Repo
from resolver.errors import LogError, ResolverError, SettingsError, UsageError, Withheld
from resolver.forge import Forge, Masked, ReadOnly
from resolver.kit import Kit
from resolver.llm.model import Message, Reply, ToolSpec
from resolver.log import FileLogs
from resolver.resolve import resolve
from resolver.secrets import Secrets
from resolver.settings.settings import Settings
from resolver.words.texts import use_templates
from resolver.workspace import Workspaces
from runtime.egress.egress import Network, Visit
from runtime.errors import NoSandboxes
from runtime.plugins import Plugin
from runtime.sandbox import Sandbox, Sandboxes

ANSWERED = timedelta(minutes=30)
"""Beyond the limit of the work itself: a queue, images, and the job that publishes."""

Say = Callable[[str], object]


class Part(Protocol):
    """What a step does with a job. Raises as `resolve` does, or Withheld when all is done that may be."""

    async def answer(self, job: Job) -> bool: ...

    async def work(self, job: Job) -> Outcome: ...

    async def apologize(self, job: Job, error: Exception) -> None: ...


async def action(
    settings: Settings, say: Say, *, leave: Path | None = None, publish: Path | None = None
) -> int:
    """The event of a workflow; the exit code. An event that asks for nothing needs no model and no engine.

    `leave`, `publish`: the directory of the parcel, for those parts. Raises SettingsError.
    """
    environ = compose.environment()
    secrets = secrets_of(settings, environ)
    logs = FileLogs(settings.data / "runs")
    rules = Triggers(label=settings.label, mention=settings.mention, app_id=settings.app_id)

    def page(job: Job) -> Path | None:
        file = logs.path(job.id) / PAGE
        try:
            write_page(job.id, logs.read(job.id), logs, file, secrets)
        except (LogError, UsageError) as exc:
            say(f"NOTICE: there is no page of the run: {exc}")
            return None
        return file

    async with contextlib.AsyncExitStack() as stack:
        github = await stack.enter_async_context(compose.forge(settings))
        forge = Masked(github, secrets.mask)
        found = None
        if environ.get("GITHUB_EVENT_NAME") in SCHEDULED:
            if leave or publish:
                raise SettingsError("A workflow on a schedule looks for its work: that takes the part `all`.")
            # In two jobs, nobody answers before the second one.
            grace = timedelta(seconds=settings.timeout) + ANSWERED
            found = await missed(github, repository(environ), rules, grace)
        part: Part
        if publish is not None:
            part = Publishing(forge, rules, without_machine(settings, secrets, logs), logs, publish)
        else:
            part = All(forge, rules, settings, say, stack)
            part = Leaving(part, logs, secrets, leave) if leave is not None else part
        return await run_action(
            environ,
            part.work,
            rules=rules,
            answer=part.answer,
            read=lambda job: logs.read(job.id),
            apologize=part.apologize,
            found=found,
            page=page if publish is None else no_page,
            secrets=own_secrets(settings),
        )


def repository(environ: Mapping[str, str]) -> Repo:
    """The workflow's own. Raises SettingsError."""
    owner, _, name = environ.get("GITHUB_REPOSITORY", "").partition("/")
    try:
        return Repo(owner=owner, name=name)
    except ValueError as exc:
        raise SettingsError("GITHUB_REPOSITORY is not set: this runs in a workflow.") from exc


class All:
    """Work and delivery, in one job."""

    def __init__(
        self, forge: Forge, rules: Triggers, settings: Settings, say: Say, stack: contextlib.AsyncExitStack
    ) -> None:
        self.forge, self.rules, self.settings = forge, rules, settings
        self._say, self._stack = say, stack
        self.made: Kit | None = None

    async def answer(self, job: Job) -> bool:
        return await answering(self.forge, self.rules, self.settings.github_server_url)(job)

    async def work(self, job: Job) -> Outcome:
        kit = await self.kit()
        return await resolve(job, kit, self.forge, commenting(self.forge, self.settings))

    async def apologize(self, job: Job, error: Exception) -> None:
        await apologize(self.forge, job, error, self.made, lasting=False)

    async def kit(self) -> Kit:
        opened = compose.kit(self.settings, trusted=False, say=self._say, listeners=(Narrator(self._say),))
        self.made = await self._stack.enter_async_context(opened)
        return self.made


class Leaving:
    """The work alone, up to the first thing that would be written: the rest is packed for `Publishing`."""

    def __init__(self, whole: All, logs: FileLogs, secrets: Secrets, directory: Path) -> None:
        self._whole, self._logs, self._secrets, self._directory = whole, logs, secrets, directory

    async def answer(self, job: Job) -> bool:
        reading = ReadOnly(self._whole.forge, job.id)
        with self._leaving(job):
            return await answering(reading, self._whole.rules, self._whole.settings.github_server_url)(job)

    async def work(self, job: Job) -> Outcome:
        with self._leaving(job):
            outcome = await resolve(job, await self._whole.kit(), ReadOnly(self._whole.forge, job.id), silent)
        self._leave(job, "")  # refused without a word: whoever publishes comes to the same
        return outcome

    async def apologize(self, job: Job, error: Exception) -> None:
        self._leave(job, explained(error))

    @contextlib.contextmanager
    def _leaving(self, job: Job) -> Iterator[None]:
        try:
            yield
        except Withheld:
            self._leave(job, "")
            raise

    def _leave(self, job: Job, problem: str) -> None:
        try:
            told = self._logs.read(job.id)
        except LogError:
            told = None
        kit = self._whole.made
        parcel.leave(self._directory, job.id, told, problem, kit.secrets if kit else self._secrets)


class Publishing:
    """What `Leaving` has left, checked and delivered; nothing is run, and no model is asked."""

    def __init__(self, forge: Forge, rules: Triggers, kit: Kit, logs: FileLogs, directory: Path) -> None:
        self._forge, self._rules, self._kit = forge, rules, kit
        self._logs, self._directory = logs, directory

    async def answer(self, job: Job) -> bool:
        return await answering(self._forge, self._rules, self._kit.settings.github_server_url)(job)

    async def work(self, job: Job) -> Outcome:
        left = parcel.take(self._directory, job)
        if left.told is not None:
            entries = await parcel.verified(left.told, job, self._forge, self._kit.settings)
            async with self._logs.open(job.id) as log:
                log.hold(entries)
        if left.label.problem:
            raise BrokeOff(left.label.problem)
        return await resolve(job, self._kit, self._forge, silent)

    async def apologize(self, job: Job, error: Exception) -> None:
        told = (
            Stopped(str(error)) if isinstance(error, BrokeOff) else error
        )  # it says already whose fault it was
        await apologize(self._forge, job, told, self._kit, lasting=False)


class BrokeOff(ResolverError):
    """The work did not come to its end; the message is for the thread."""


def without_machine(settings: Settings, secrets: Secrets, logs: FileLogs) -> Kit:
    """What a run needs that is only to be delivered."""
    use_templates(settings.templates)
    return Kit(
        settings=settings,
        model=NoModel(),
        sandboxes=Nowhere(),
        workspaces=Workspaces(settings.data / "cache", settings.ca_bundle),
        logs=logs,
        secrets=secrets,
    )


class NoModel:
    """Nobody is asked anything."""

    name = "none"
    sees = False
    window = None

    async def reply(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        raise _nowhere()


class Nowhere:
    """No sandbox is ever opened."""

    kind: Literal["docker", "local"] = "docker"
    network: Network = "none"
    plugins: tuple[Plugin, ...] = ()

    def open(self, name: str, *, online: bool = False, kept: bool = False) -> NoReturn:
        raise _nowhere()

    def adopt(self, name: str) -> NoReturn:
        raise _nowhere()

    async def derived(
        self, name: str, repository: str, key: str, fill: Callable[[Sandbox], Awaitable[None]]
    ) -> Sandboxes:
        raise _nowhere()

    async def on(self, image: str) -> Sandboxes:
        raise _nowhere()

    async def prepare(self) -> None:
        raise _nowhere()

    async def contents(self) -> str | None:
        raise _nowhere()

    def visits(self, name: str) -> tuple[Visit, ...]:
        return ()

    async def sweep(self) -> None:
        """Nothing is left behind."""

    async def close(self) -> None:
        """Nothing is held."""


def _nowhere() -> NoSandboxes:
    return NoSandboxes(
        "The job that publishes runs nothing, and the one before it left work that is not done."
    )
