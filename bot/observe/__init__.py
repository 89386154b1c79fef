"""What an operator sees: logs, figures, traces, and runs kept for good."""
