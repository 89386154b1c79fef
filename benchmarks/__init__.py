"""The benchmarks: one module per measurement, each run as `python -m benchmarks.NAME`."""
