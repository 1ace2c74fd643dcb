"""A configuration for a collection of one's own: what its files hold, what this machine is, which sizes fit both."""
