"""Chooses a workspace by its arguments."""

from pathlib import Path

from patchwright.sdk.workspaces.base import BaseWorkspace


def Workspace(  # noqa: N802 (named like the classes that it returns)
    host: str | None = None, working_dir: str | Path = "workspace/project", api_key: str | None = None
) -> BaseWorkspace:
    """Returns a RemoteWorkspace on the server `host`, or a LocalWorkspace if there is no `host`. The directory of a
    LocalWorkspace is created if it is missing.
    """
    if host is not None:
        from patchwright.sdk.workspaces.remote import RemoteWorkspace

        return RemoteWorkspace(host, api_key=api_key)
    from patchwright.sdk.workspaces.local import LocalWorkspace

    Path(working_dir).mkdir(parents=True, exist_ok=True)
    return LocalWorkspace(working_dir)
