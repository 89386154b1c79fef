"""Programs that run inside of image builds, never on the host and never in a sandbox. Standard library only."""
