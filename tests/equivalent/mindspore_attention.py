"""Mutants of solutions/mindspore/attention.py that compute the same."""

SWAP = "swapaxes(a, b) is swapaxes(b, a)"

EQUIVALENT = {
    ("mindspore.attention.attention", "line 7: arguments swapped"): SWAP,
    ("mindspore.attention.split_heads", "line 5: arguments swapped"): SWAP,
    ("mindspore.attention.merge_heads", "line 4: arguments swapped"): SWAP,
}
