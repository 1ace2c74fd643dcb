"""Analyses for the notebooks: wrong results, score distributions during a joint training, hardness of negatives."""
