"""Weights of terms by layers of their own: uniCOIL, DeepCT, SpaDE, UHD-BERT."""
