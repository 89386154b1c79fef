"""The commands of the command line, except for those of the server and the setup."""
