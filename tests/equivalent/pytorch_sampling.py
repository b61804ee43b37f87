"""Mutants of solutions/pytorch/sampling.py that compute the same."""

K, P, S = "pytorch.sampling.keep_top_k", "pytorch.sampling.keep_top_p", "pytorch.sampling.sample"

EQUIVALENT = {
    (K, "line 3: arguments swapped"): "min(V, k) is min(k, V)",
    (K, "line 4: without dim="): "topk works along the last axis by default",
    (P, "line 6: GtE to Gt"): "p = 1 then goes the long way: every sum before a token is below 1, but for rounding",
    (P, "line 6: 1 to 2"): "the same for p = 1; more than 1 is not asked for",
    (P, "line 8: without dim="): "sort works along the last axis by default",
    (P, "line 11: GtE to Gt"): "differs where a sum equals p to the last bit; both forms are in use",
    (S, "line 15: without USub"): "logits are (B, V): axis 1 is the last axis",
    (S, "line 22: without USub"): "logits are (B, V): axis 1 is the last axis",
}
