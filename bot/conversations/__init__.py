"""Conversations and workspaces on the server, which programs use through the HTTP API."""
