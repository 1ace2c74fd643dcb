"""Exact search by torch, for GPUs: an engine that computes the bytes that FAISS computes on a CPU."""
