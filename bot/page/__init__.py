"""The page: what runs and has run, watched live, with two buttons; for those who may read the repository."""
