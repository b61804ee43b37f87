"""Mutants of solutions/pytorch/gpt.py that compute the same."""

EQUIVALENT = {}
