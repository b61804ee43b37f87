"""Mutants of solutions/pytorch/primitives.py that compute the same."""

LOSS, BACKWARD = "pytorch.primitives.cross_entropy", "pytorch.primitives.cross_entropy_backward"
STAND_IN = "an ignored target needs some valid index in its place, and what is read there is thrown away"
LAST_AXIS = "logits have two axes: the last one is axis 1"

EQUIVALENT = {
    (LOSS, "line 7: without USub"): LAST_AXIS,
    (LOSS, "line 9: 0 to 1"): STAND_IN,
    (LOSS, "line 9: 0 to -1"): STAND_IN,
    (BACKWARD, "line 4: 0 to 1"): STAND_IN,
    (BACKWARD, "line 4: 0 to -1"): STAND_IN,
    (BACKWARD, "line 5: without USub"): LAST_AXIS,
}
