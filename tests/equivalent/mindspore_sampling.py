"""Mutants of solutions/mindspore/sampling.py that compute the same."""

S = "mindspore.sampling.sample"

EQUIVALENT = {
    (S, "line 17: without USub"): "logits are (B, V): axis 1 is the last axis",
    (S, "line 24: without USub"): "logits are (B, V): axis 1 is the last axis",
}
