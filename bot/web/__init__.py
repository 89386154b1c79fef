"""The web server: health endpoints, the HTTP API for jobs, and the dashboard, which is loaded when it is first used."""
