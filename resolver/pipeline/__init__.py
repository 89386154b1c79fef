"""The steps of a run, from admission to publication. This package is the top layer of the resolver."""
