"""What no delivery has told, found again at GitHub."""
