"""Mutants of solutions/pytorch/layer_spec.py that compute the same."""

EQUIVALENT = {}
