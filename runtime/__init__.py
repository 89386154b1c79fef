"""Sandboxes: they run actions and return observations. This is the only package that is copied into a
container.
"""

VERSION = "0.1.0"
