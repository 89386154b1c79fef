"""First-time setup of a server: web pages that create the GitHub App, and storage for its credentials."""
