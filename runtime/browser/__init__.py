"""The browser in a sandbox: the calls that an agent can write, such as `click`, and Chromium, which runs them."""
