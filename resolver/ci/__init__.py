"""Continuous integration on the bot's commits: check results, repairs, and commits on which CI is held."""
