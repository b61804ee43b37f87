"""Mutants of solutions/pytorch/stages.py that compute the same."""

L, C = "pytorch.stages.partition_layers", "pytorch.stages.partition_by_cost"

EQUIVALENT = {
    (L, "line 20: arguments swapped"): "min(a, b) is min(b, a)",
    (C, "line 10: 1 to 0"): "an entry for no units at all, which nobody reads",
    (C, "line 10: 1 to 2"): "an entry beyond the last unit, which nobody reads",
    (C, "line 13: arguments swapped"): "max(a, b) is max(b, a)",
    (C, "line 14: 1 to 2"): "an entry beyond the last unit, which nobody reads",
}
