"""Parsers for the reports of test runners."""
