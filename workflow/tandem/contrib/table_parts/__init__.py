"""What a layout may ask for beside a table's values: orders of rows, and costs of systems."""
