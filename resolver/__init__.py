"""The work: from an issue to a proven patch. Knows the machine, knows no forge's vendor."""
