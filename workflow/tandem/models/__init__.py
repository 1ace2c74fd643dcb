"""Encoders, dual encoders and cross-encoders: loading, token ids, pooling, saving."""
