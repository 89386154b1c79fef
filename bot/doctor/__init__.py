"""`patchwright doctor`: whether everything is there that a run needs, and what mends what is not."""
