"""Sandboxes as containers, and the images that they are made from. On the host alone."""
