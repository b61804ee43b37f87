"""Mutants of solutions/pytorch/pretrained.py that compute the same."""

EQUIVALENT = {}
