"""Read and write durations the way people do."""

from durations.reading import parse
from durations.units import UNITS
from durations.writing import show

__all__ = ["UNITS", "parse", "show"]
