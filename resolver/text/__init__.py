"""Markdown, and quoted untrusted text."""
