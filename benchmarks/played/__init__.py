"""Bugs of published packages that a person fixed by hand, in the place of the model.

See `docs/internals/played.md`.
"""
