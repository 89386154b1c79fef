"""Docker containers as sandboxes, and the images that they use. Runs on the host only."""
