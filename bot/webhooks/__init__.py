"""Webhook deliveries: receiving, verifying and parsing them, and finding the requests in them."""
