"""Re-ranking by a model that compares passages: each two at the top of a list, and what is made of it."""
