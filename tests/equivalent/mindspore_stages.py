"""Mutants of solutions/mindspore/stages.py that compute the same."""

EQUIVALENT = {}
