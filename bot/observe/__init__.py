"""Observability for operators: logs, metrics, traces and the archive of runs."""
