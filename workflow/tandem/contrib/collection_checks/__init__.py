"""What looks wrong with a collection: languages that do not fit, and queries that find themselves."""
