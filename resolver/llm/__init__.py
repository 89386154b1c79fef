"""Language models: their interface, its implementation with litellm, and wrappers for retries, fallback and
routing.
"""
