"""Setting up a server: the page that makes the App, and what is kept of it."""
