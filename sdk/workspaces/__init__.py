"""Workspaces: directories in which an agent works, on this machine, in Docker, or on a server."""
