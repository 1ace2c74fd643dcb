"""Choice of BM25's k1 and b on a split with labels."""
