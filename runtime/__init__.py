"""The machine: actions in, observations out. The only package that the container receives."""

VERSION = "0.1.0"
