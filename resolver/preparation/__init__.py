"""Prepares a run: the repository's setup, its instructions, attachments, and the first message."""
