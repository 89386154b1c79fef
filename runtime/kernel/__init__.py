"""The Python session of a sandbox."""
