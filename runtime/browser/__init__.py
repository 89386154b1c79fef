"""The browser in a sandbox: its language, and Chromium, which does what is said in it."""
