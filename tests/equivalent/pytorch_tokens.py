"""Mutants of solutions/pytorch/tokens.py that compute the same."""

EQUIVALENT = {
    ("pytorch.tokens.save_tokens", "line 7: 0 to -1"): "without ids, ids.max() on the next line raises a ValueError too, only with NumPy's words",
}
