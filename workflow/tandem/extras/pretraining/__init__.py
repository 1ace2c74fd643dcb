"""Encoders that learn from a corpus alone: vocabulary, masked language modelling, crops, RetroMAE, coCondenser."""
