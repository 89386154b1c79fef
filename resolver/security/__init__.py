"""What may be done and what may leave: the risk of a call, the policy for a patch, and what is hidden."""
