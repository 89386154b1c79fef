"""The browser in a sandbox: its call language, and Chromium that runs the calls."""
