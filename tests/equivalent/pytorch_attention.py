"""Mutants of solutions/pytorch/attention.py that compute the same."""

EQUIVALENT = {}
