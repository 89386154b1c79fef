"""Programs that run in image builds, but never on the host or in a sandbox. They use only the standard
library.
"""
