"""The one way out of a sandbox. On the host alone."""
