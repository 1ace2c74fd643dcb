"""Tables of the papers and the page of a run: views that are made from finished artifacts only."""
