"""The first command of the README: a whole run on this machine, with no account and no key."""
