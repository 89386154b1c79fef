"""Verification of patches: test runs with and without the patch, checks of the patch, and repairs."""
