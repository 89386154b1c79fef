"""A run as a step of a GitHub Actions workflow."""
