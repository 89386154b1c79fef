"""Skills: instructions for a kind of task, from the repository or shipped with Patchwright."""
