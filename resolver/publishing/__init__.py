"""Publishing a change: branches, check runs, artifacts and the texts about them."""
