"""Requests from people: plans, and options that exceed limits."""
