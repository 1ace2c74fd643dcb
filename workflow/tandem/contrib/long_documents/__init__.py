"""Long documents by their windows: runs over windows, and windows' scores, made into those of documents."""
