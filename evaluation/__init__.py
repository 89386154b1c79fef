"""Measures how many issues Patchwright resolves. See `docs/evaluation.md`.

An optional part: nothing else imports it, except the commands `evaluate` and `tune`.
"""
