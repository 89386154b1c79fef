"""What a page shows: read over the DevTools protocol alone."""
