"""The GitHub adapter: everything that a run reads from GitHub and writes to it."""
