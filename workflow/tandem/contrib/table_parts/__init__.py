"""Optional parts of a table in addition to its values: orders of rows, and costs of systems."""
