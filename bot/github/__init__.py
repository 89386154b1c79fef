"""GitHub: the forge of a run, and all that we ask of it and tell it."""
