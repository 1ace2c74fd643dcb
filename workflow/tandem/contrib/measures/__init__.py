"""Measures in addition to those of ir_measures: F1@k, three formulas of DCG@k, ERR@k."""
