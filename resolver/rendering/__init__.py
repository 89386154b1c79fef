"""Renders templates: the Jinja environment, its filters, and subjects of commits and pull requests."""
