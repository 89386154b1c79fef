"""The worker's process, its daily limits, and what became of the pull requests."""
