"""The prompts of the agent: system prompt, first message, and notes."""
