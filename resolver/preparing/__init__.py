"""What is made ready before the agent's first step: the repository's set-up, and what the agent is told."""
