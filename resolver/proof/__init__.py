"""The proof: test runs with and without the patch, the verdict, checks of the patch, and repairs."""
