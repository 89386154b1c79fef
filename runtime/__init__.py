"""Sandboxes, which run actions and return observations. Only this package is copied into the container."""

VERSION = "0.1.0"
