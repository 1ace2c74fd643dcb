"""Use built artifacts: interactive search, and export for other programs."""
