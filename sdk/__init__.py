"""The public Python API. Import its names from `patchwright`; see `docs/library.md`."""
