"""Defines a run and its dependencies, such as its model and its sandboxes. `bot/composition/composition_root.py`
creates the dependencies and passes them to the resolver.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from patchwright.resolver.confirmation import ConfirmationRequest
from patchwright.resolver.domain import Job, Repo, Thread
from patchwright.resolver.events import Message, Trajectory
from patchwright.resolver.forge import Forge, RepoFacts
from patchwright.resolver.git.workspaces import WorkspaceFactory
from patchwright.resolver.llm.model import Model
from patchwright.resolver.llm.router import RunModels
from patchwright.resolver.run_log import Listener, LogStore, RunLog
from patchwright.resolver.sandbox.multimodal import Transcriber
from patchwright.resolver.sandbox.secret_sources import SecretSource
from patchwright.resolver.secrets import Secrets
from patchwright.resolver.settings.settings import Settings
from patchwright.runtime.sandbox import Sandboxes

ProgressReporter = Callable[[Job, RunLog], AbstractAsyncContextManager[None]]
"""Returns a context manager that reports the progress of a run to people until the context exits."""


def no_repo_secrets(repo: Repo) -> Mapping[str, SecretSource]:
    """The default of `RunDependencies.get_repo_secrets`: the repository has no secrets."""
    return {}


async def no_new_messages(job: Job, trajectory: Trajectory) -> tuple[Message, ...]:
    """The default of `RunDependencies.get_new_messages`: there are never new messages."""
    return ()


@dataclass(frozen=True)
class RunDependencies:
    """All external dependencies of a run."""

    settings: Settings
    model: Model
    sandboxes: Sandboxes
    workspaces: WorkspaceFactory
    logs: LogStore
    secrets: Secrets
    listeners: tuple[Listener, ...] = ()
    """Called with every log entry as it is written."""
    purpose_models: RunModels | None = None
    """Models for special purposes. None if `model` is used for every purpose."""
    choose_models: Callable[[str], RunModels] | None = None
    """Returns the models of a run. The argument is the name of the model that the requester chose for the
    agent. None if requesters may not choose a model.
    """
    agents: Mapping[str, Callable[[RunLog], Model]] = field(default_factory=dict)
    """The agents of installed packages, by name. Each function returns a model whose replies are the agent's steps."""
    transcription: Transcriber | None = None
    """Transcribes audio recordings. None if no model can transcribe."""
    checks_endpoint: bool = True
    """True if each job has to check the model's endpoint and key, because they were last checked long before it."""
    can_ask: bool = True
    """False if no person reads the run's questions. Calls that need approval are then refused."""
    ask_person: Callable[[ConfirmationRequest, Job], Awaitable[Message | None]] | None = None
    """Asks the person at the terminal at once whether a call may run. None if a call waits for a comment."""
    get_repo_secrets: Callable[[Repo], Mapping[str, SecretSource]] = no_repo_secrets
    """Returns a repository's own secrets, by name."""
    get_new_messages: Callable[[Job, Trajectory], Awaitable[tuple[Message, ...]]] = no_new_messages
    """Returns the messages that people wrote to a running job and that are not yet in its trajectory."""

    @property
    def models(self) -> RunModels:
        """Models by purpose."""
        return self.purpose_models or RunModels.with_default(self.model, {})


@dataclass(frozen=True)
class Run:
    """What every step of a run on the forge needs."""

    job: Job
    thread: Thread
    """The thread as it was read for this job. `RunStarted` in the log has the thread that the agent works on."""
    facts: RepoFacts
    log: RunLog
    deps: RunDependencies
    forge: Forge
    reporter: ProgressReporter
