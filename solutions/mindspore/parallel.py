"""Training on several processes: what a rank sends, as a function that returns what it made."""
from mindspore import ops


def average_gradients(grads, all_reduce, world_size):
    """The mean over all ranks of each gradient, in one message.

    grads: tuple of tensors. all_reduce(x): the sum of x over all ranks, for example ops.AllReduce(). Returns a new tuple
    of the same shapes; the same eagerly and in graph mode. Every rank calls it at the same point.
    """
    flat = ops.cat([g.reshape(-1) for g in grads])            # (numbers in all,)
    flat = all_reduce(flat)                                   # the sum over all ranks, on every rank
    flat = flat / world_size
    pieces = ops.split(flat, [g.size for g in grads])
    return tuple([piece.reshape(g.shape) for piece, g in zip(pieces, grads)])
