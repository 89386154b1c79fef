"""Reads the content of a web page over the DevTools protocol."""
