"""Mutants of solutions/pytorch/rope.py that compute the same."""

EQUIVALENT = {}
