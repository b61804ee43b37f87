"""Mutants of solutions/mindspore/rope.py that compute the same."""

EQUIVALENT = {}
