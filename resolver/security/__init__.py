"""Security checks of actions and patches: risk rating, patch policy and review notes."""
