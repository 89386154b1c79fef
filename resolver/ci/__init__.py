"""CI on the bot's commits: commits whose CI waits for a person, and excerpts of logs."""
