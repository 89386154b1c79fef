"""Parts of a delivery: where the work is kept, and what is said of it on the forge."""
