"""What is measured, how, and against whom: one module a figure, each run as `python -m benchmarks.NAME`."""
