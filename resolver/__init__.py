"""Resolves issues. The modules of this package are nouns and protocols that all its subpackages use."""
