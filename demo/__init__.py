"""The demo from the README: a complete run on this machine, without an account or an API key."""
