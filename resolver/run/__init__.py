"""What a run is given: its dependencies, its effective settings, and the repository's configuration."""
