"""A run as one page: from its log alone."""
