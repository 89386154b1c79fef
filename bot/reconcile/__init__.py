"""Recovery of events whose webhook deliveries were missed."""
