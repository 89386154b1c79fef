"""Continuous integration on our commits: what it found, whether it starts, and what becomes of a failure."""
