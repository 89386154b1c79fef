"""The operator's settings and the maintainers' repository configuration. Both are validated when they are
read.
"""
