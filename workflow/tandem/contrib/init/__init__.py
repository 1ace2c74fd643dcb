"""A first configuration for a user's own data: inspect the data, derive the options, and limit the queries."""
