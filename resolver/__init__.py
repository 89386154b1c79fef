"""Resolves issues and pull requests with verified patches. No module of this package depends on the API of a
particular forge.
"""
