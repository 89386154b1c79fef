"""Verification of patches: test runs before and after, checks of the patch, and repair rounds."""
