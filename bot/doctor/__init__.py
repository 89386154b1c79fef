"""`patchwright doctor`: checks everything that a run needs, and says how to fix the problems."""
