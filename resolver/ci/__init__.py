"""Continuous integration (CI) on the bot's commits: check results, repairs, and commits whose CI waits for a person."""
