"""Fusion: several runs become one, query by query, with settings that are given or chosen on dev."""
