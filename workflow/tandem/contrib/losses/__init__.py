"""Further losses than the papers': of pairs, of a list's order, variants of KL, regression, regularisers."""
