"""The service around the resolver. The modules of this package are nouns and protocols that all its subpackages use."""
