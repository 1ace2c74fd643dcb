"""A first configuration for data of one's own: what is there, what follows, and how much of it is searched."""
