"""The run viewer, which renders a run's log as HTML. The result is a standalone file, or fragments for the
dashboard.
"""
