"""Language models that re-rank: by yes or no, by the order of a window, or by the better passage of two."""
