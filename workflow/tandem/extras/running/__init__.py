"""`tandem run`: Snakemake underneath, one line of progress, and the answer at the end."""
