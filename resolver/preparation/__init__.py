"""Prepares the work: the repository's setup, its packages, its instructions, and attachments."""
