"""Creates the objects that depend on settings and environment. Only this package knows all implementations."""
