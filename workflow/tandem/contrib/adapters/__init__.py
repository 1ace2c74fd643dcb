"""Low-rank adapters: encoders that learn a few additional weights while their own stay frozen."""
