"""A repository's test suites: discovery, commands, execution and results."""
