"""Long documents by their windows: runs and scores of windows are aggregated to runs and scores of documents."""
