"""Language models that re-rank: yes or no, the order of a window, or the better one of two."""
