"""Mutants of solutions/pytorch/embeddings.py that compute the same."""

EQUIVALENT = {}
