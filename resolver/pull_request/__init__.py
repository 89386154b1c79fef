"""Work on existing pull requests: their context for the agent, templates and texts."""
