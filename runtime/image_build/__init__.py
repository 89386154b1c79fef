"""Programs that run in image builds, never on the host or in a sandbox. Standard library only."""
