"""Losses beside the two papers': of pairs, of orders, KL's variants, regression, regularisers."""
