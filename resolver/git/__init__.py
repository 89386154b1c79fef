"""Repositories, as far as git knows them: on the host nothing of what is in one is run."""
