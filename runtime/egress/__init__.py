"""Egress control. It is a sandbox's only way to the network, and it runs only on the host."""
