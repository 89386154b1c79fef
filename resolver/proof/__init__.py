"""Parts of the proof, and what becomes of a patch that fails it."""
