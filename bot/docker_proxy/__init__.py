"""A proxy for the Docker API that permits only what Patchwright's worker needs."""
