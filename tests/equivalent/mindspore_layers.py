"""Mutants of gelu and MLP in solutions/mindspore/layers.py that compute the same."""

EQUIVALENT = {}
