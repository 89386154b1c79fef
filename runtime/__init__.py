"""Sandboxes: they run actions and return observations. Only this package is copied into containers."""

VERSION = "0.1.0"
