"""The demo that the README starts: a complete run on this machine, without an account or an API key."""
