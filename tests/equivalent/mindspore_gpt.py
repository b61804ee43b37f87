"""Mutants of solutions/mindspore/gpt.py that compute the same."""

EQUIVALENT = {}
