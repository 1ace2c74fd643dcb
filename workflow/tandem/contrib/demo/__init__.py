"""Using what was built: interactive search, and export for other programs."""
