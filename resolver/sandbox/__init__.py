"""The agent's sandbox during a run, and the wrappers of this sandbox."""
