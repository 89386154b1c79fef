"""The agent's sandbox during a run, and the wrappers around it."""
