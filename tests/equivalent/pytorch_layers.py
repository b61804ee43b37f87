"""Mutants of solutions/pytorch/layers.py that compute the same."""

EQUIVALENT = {}
