"""The units that a duration is made of."""

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
"""Seconds in each unit, largest first."""
