"""Docker containers as sandboxes, and the images for them. This package runs only on the host."""
