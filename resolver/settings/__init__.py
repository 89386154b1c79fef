"""Settings of operators and configuration of maintainers, validated when read."""
