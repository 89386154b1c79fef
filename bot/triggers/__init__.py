"""Triggers: who may start, stop or change a job, and what follows from a delivery."""
