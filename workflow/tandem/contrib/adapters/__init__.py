"""Low-rank adapters: encoders that learn few weights beside their own."""
