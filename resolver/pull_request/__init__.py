"""Work on existing pull requests: their context for the agent, and pushing and replying."""
