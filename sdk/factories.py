"""Chooses the class of a workspace or conversation by the arguments."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from patchwright.resolver.events import Entry
    from patchwright.sdk.agents import BaseAgent
    from patchwright.sdk.base_workspace import BaseWorkspace
    from patchwright.sdk.conversation import BaseConversation


def Conversation(  # noqa: N802 (named like the classes whose objects it returns)
    agent: "BaseAgent",
    workspace: "BaseWorkspace | str | Path",
    *,
    id: str | None = None,
    persistence_dir: str | Path | None = None,
    callbacks: "Iterable[Callable[[Entry], object]]" = (),
) -> "BaseConversation":
    """Returns a LocalConversation, or a RemoteConversation if the workspace is a RemoteWorkspace. A path means a
    LocalWorkspace.

    - `id` is the name of the conversation. An existing conversation is continued.
    - `persistence_dir` is the directory for the logs of conversations. By default, it is `conversations` in
      Patchwright's data directory. A RemoteConversation is kept on the server.
    - `callbacks` are called with each new entry of the log.
    """
    from patchwright.sdk.remote_workspace import RemoteWorkspace

    if isinstance(workspace, RemoteWorkspace):
        from patchwright.sdk.remote_conversation import RemoteConversation

        if persistence_dir is not None:
            raise ValueError("the server keeps the conversation: leave out persistence_dir")
        return RemoteConversation(agent, workspace, id=id, callbacks=callbacks)
    from patchwright.sdk.local_conversation import LocalConversation

    return LocalConversation(agent, workspace, id=id, persistence_dir=persistence_dir, callbacks=callbacks)


def Workspace(  # noqa: N802 (named like the classes that it returns)
    host: str | None = None, working_dir: str | Path = "workspace/project", api_key: str | None = None
) -> "BaseWorkspace":
    """Returns a RemoteWorkspace on the server `host`, or a LocalWorkspace if there is no `host`. The directory of a
    LocalWorkspace is created if it is missing.
    """
    if host is not None:
        from patchwright.sdk.remote_workspace import RemoteWorkspace

        return RemoteWorkspace(host, api_key=api_key)
    from patchwright.sdk.local_workspace import LocalWorkspace

    Path(working_dir).mkdir(parents=True, exist_ok=True)
    return LocalWorkspace(working_dir)
