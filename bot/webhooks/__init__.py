"""From a delivery's bytes to what it asks for."""
