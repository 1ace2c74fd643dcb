"""Exact search by torch, for GPUs: an engine whose results equal those of FAISS on a CPU byte for byte."""
