"""Measures per query, relevance by labels or answers, and tests of whether two systems differ."""
