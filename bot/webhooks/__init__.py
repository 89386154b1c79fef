"""Receives, verifies and parses webhook deliveries, and finds the requests in them."""
