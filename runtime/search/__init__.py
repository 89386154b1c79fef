"""Searches the work tree."""
