"""The run viewer: renders a run's log as HTML, as a standalone file or as fragments for the dashboard."""
