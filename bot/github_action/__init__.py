"""Runs Patchwright as a step of a GitHub Actions workflow."""
