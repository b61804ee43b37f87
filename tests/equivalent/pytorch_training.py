"""Mutants of solutions/pytorch/training.py that compute the same."""

SCHEDULE = "pytorch.training.cosine_lr"
ADAMW = "pytorch.training.AdamW"
CLIP = "pytorch.training.clip_grad_norm"
LOAD = "pytorch.training.load_checkpoint"

EQUIVALENT = {
    (SCHEDULE, "line 6: Lt to LtE"): "at it = warmup the warmup has just reached max_lr, where the cosine starts",
    (SCHEDULE, "line 8: GtE to Gt"): "at it = total the cosine has just reached min_lr",
    (ADAMW, "line 11: 0 to -1"): "the last entry is a dict exactly when the first is",
    (CLIP, "line 9: Lt to LtE"): "a scale of exactly 1 changes nothing",
    (LOAD, "line 3: without map_location="): "on a machine with a CPU only every tensor is on it already",
    (LOAD, "line 3: without weights_only="): "True is PyTorch's default since 2.6; it is written out for older ones and for the reader",
}
