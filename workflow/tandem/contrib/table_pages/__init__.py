"""Tables as pages, and in LaTeX."""
