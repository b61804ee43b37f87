"""Mutants of solutions/mindspore/training.py that compute the same."""

A, C, B = "mindspore.training.AdamW", "mindspore.training.clip_grad_norm", "mindspore.training.accumulate"

EQUIVALENT = {
    (A, "line 11: without name="): "a Cell names its Parameters after their attributes",
    (A, "line 12: without name="): "a Cell names its Parameters after their attributes",
    (A, "line 11: without requires_grad="): "gradients are taken with respect to the model's parameters, and lr is none of them",
    (A, "line 12: without requires_grad="): "gradients are taken with respect to the model's parameters, and t is none of them",
    (A, "line 11: False to True"): "gradients are taken with respect to the model's parameters, and lr is none of them",
    (A, "line 12: False to True"): "gradients are taken with respect to the model's parameters, and t is none of them",
    (C, "line 5: arguments swapped"): "minimum(1, a) is minimum(a, 1)",
    (B, "line 11: arguments swapped"): "g + s is s + g",
}
