"""A workspace on a Patchwright server."""

from patchwright.sdk.workspaces.base import BaseWorkspace


class RemoteWorkspace(BaseWorkspace):
    pass
