"""Security checks of actions and patches: risk rating, patch policy, review notes and masking."""
