"""Mutants of solutions/mindspore/fast.py that compute the same."""

SWAP = "swapaxes(1, 2) and swapaxes(2, 1) swap the same axes"
FILLER = "exp of -1e9 and of its neighbours is 0 alike"

EQUIVALENT = {
    ("mindspore.fast.CausalSelfAttention", "line 17: arguments swapped"): SWAP,
    ("mindspore.fast.CausalSelfAttention", "line 21: arguments swapped"): SWAP,
    ("mindspore.fast.CausalSelfAttention", "line 11: 1000000000.0 to 1000000001.0"): FILLER,
    ("mindspore.fast.CausalSelfAttention", "line 11: 1000000000.0 to 999999999.0"): FILLER,
}
