"""Searching the work tree."""
