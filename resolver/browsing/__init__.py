"""The browsing agent: what it is shown, what it says, and what it brings back."""
