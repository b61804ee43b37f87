"""Mutants of solutions/mindspore/primitives.py that compute the same."""

LOSS = "mindspore.primitives.cross_entropy"
STAND_IN = "an ignored target needs some valid index in its place, and what is read there is thrown away"

EQUIVALENT = {
    ("mindspore.primitives.linear", "line 7: arguments swapped"): "swapaxes(1, 0) is swapaxes(0, 1)",
    (LOSS, "line 7: without USub"): "logits have two axes: the last one is axis 1",
    (LOSS, "line 9: 0 to 1"): STAND_IN,
    (LOSS, "line 9: 0 to -1"): STAND_IN,
}
