"""One training loop for every objective: lists, losses, exact resume."""
