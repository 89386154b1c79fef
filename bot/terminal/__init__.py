"""What a person at a terminal types and reads."""
