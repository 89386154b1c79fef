"""What happened in a run, derived from its log: summary, current activity, and the agent's own test runs."""
