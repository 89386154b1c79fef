"""The agent: its loop, its messages, and the shortening of long conversations."""
