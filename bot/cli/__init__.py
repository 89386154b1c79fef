"""The command line: parser, and the start of each command."""
