"""The browsing agent: its prompt, its steps and its report."""
