"""Carries out actions in a sandbox: the executor, its editor, the server in the container, and the local sandbox."""
