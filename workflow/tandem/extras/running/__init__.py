"""`tandem run`: it calls Snakemake, shows one line of progress, and ends with the answer."""
