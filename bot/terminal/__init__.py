"""Commands that run in a terminal, and their output."""
