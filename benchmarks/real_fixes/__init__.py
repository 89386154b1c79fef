"""Verifies real fixes: pairs of published releases, of which the newer one fixed something in the older one.

See `docs/internals/real-fixes.md`.
"""
