"""Mutants of solutions/mindspore/static_cache.py that compute the same."""

CACHE = "mindspore.static_cache.StaticKVCache"

EQUIVALENT = {
    (CACHE, "line 19: False to True"): "nobody trains the buffers, and no gradient is asked for",
    (CACHE, "line 19: without requires_grad="): "nobody trains the buffers, and no gradient is asked for",
    (CACHE, "line 19: without name="): "a Parameter without a name gets one of its own, Parameter#n",
}
