"""Continuous integration on the bot's commits: check results, held commits, and repairs."""
