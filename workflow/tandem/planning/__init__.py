"""From a configuration to stages: read and checked, resolved, named. Only the Snakefile and the command line ask."""
