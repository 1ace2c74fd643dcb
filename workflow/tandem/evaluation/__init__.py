"""Measure runs per query, with relevance by labels or answers, and test whether two systems differ."""
