"""Language models: the interface, the providers behind it, and wrappers for retries, fallback and routing."""
