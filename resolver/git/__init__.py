"""Git repositories on the host. This package never executes code of a repository."""
