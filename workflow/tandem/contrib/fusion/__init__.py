"""Fusion: several runs become one, query by query, with settings that are fixed or chosen on dev."""
