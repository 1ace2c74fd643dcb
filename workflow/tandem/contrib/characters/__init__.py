"""Encoders that read words by their characters, as CharacterBERT does."""
