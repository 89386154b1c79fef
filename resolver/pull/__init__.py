"""Work on a pull request: what is seen of it, and how a change is handed over."""
