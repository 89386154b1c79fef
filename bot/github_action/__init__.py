"""Runs patchwright as a step of a GitHub Actions workflow."""
