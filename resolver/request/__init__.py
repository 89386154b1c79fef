"""Requests from people: admission, commands, options, base branches and plans."""
