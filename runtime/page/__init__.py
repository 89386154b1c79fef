"""Reads the content of a page over the DevTools protocol."""
