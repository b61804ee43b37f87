"""Mutants of solutions/mindspore/precision.py that compute the same."""

NAMED = "a Cell names its Parameters by their attributes, scale and good_steps"

EQUIVALENT = {
    ("mindspore.precision.attention_in", "line 8: arguments swapped"): "swapaxes(a, b) is swapaxes(b, a)",
    ("mindspore.precision.LossScaler", "line 12: without name="): NAMED,
    ("mindspore.precision.LossScaler", "line 14: without name="): NAMED,
}
