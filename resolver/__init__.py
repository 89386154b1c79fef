"""Resolves issues and pull requests with verified patches. Nothing here depends on the API of a particular
forge.
"""
