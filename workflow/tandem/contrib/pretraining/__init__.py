"""Encoders of one's own: a vocabulary and first weights from a corpus, and eleven objectives that need no labels."""
