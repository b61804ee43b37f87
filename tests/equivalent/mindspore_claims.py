"""Mutants of solutions/mindspore/claims.py that compute the same."""

EQUIVALENT = {}
