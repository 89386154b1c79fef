"""The browser in a sandbox: the language of its calls, and Chromium, which runs the calls."""
