"""Egress control: the only way from a sandbox to the network. This package runs only on the host."""
