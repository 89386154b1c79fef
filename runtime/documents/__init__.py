"""Files that are not text, as text."""
