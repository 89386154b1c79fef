"""Git repositories on the host. Nothing that a repository contains is executed here."""
