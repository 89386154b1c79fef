"""Converts documents to Markdown."""
