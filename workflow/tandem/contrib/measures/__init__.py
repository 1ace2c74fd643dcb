"""Measures beside ir_measures': F1@k, three formulas of DCG@k, ERR@k."""
