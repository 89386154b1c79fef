"""The agent's sandbox in the course of a run, and the wrappers around it."""
