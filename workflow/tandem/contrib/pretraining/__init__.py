"""Encoders of one's own: a vocabulary and first weights from a corpus, and ten objectives that need no labels."""
