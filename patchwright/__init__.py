"""Patchwright: label an issue `fix-me`, get a tested pull request.

In a checkout the subpackages are symbolic links to the folders at the top level, so that each module has one
name, `patchwright.resolver.pipeline.resolve` for instance, in a checkout, an editable install and a wheel alike.
"""
