import math

import torch
import torch.nn.functional as F
from torch import nn

from solutions.pytorch import embeddings as good
from tests.mistakes import right, wrong

ONE_HOT = "pytorch.embeddings.one_hot"
EMBEDDING = "pytorch.embeddings.Embedding"
BACKWARD = "pytorch.embeddings.embedding_backward"
BOTH = "pytorch.embeddings.TokenAndPosition"

# --- one_hot -------------------------------------------------------------------------------------------


@wrong(ONE_HOT, "expected torch.float32")
def hot_as_ints(idx, n):
    return F.one_hot(idx, n)


@wrong(ONE_HOT, "expected torch.float32")
def hot_as_bools(idx, n):
    return idx[..., None] == torch.arange(n, device=idx.device)


@wrong(ONE_HOT, "expected torch.float32")
def hot_as_float64(idx, n):
    return F.one_hot(idx, n).double()


@wrong(ONE_HOT, "n columns come first")
def hot_axis_first(idx, n):
    return (torch.arange(n, device=idx.device).reshape(-1, *[1] * idx.dim()) == idx).float()


@wrong(ONE_HOT, "last two axes are swapped")
def hot_axis_second_to_last(idx, n):
    return (idx[..., None, :] == torch.arange(n, device=idx.device)[:, None]).float()


@wrong(ONE_HOT, "n columns come first")
def hot_axis_second_to_last_of_ints(idx, n):
    return F.one_hot(idx, n).movedim(-1, 0)


@wrong(ONE_HOT, "inverted")
def hot_inverted(idx, n):
    return (idx[..., None] != torch.arange(n, device=idx.device)).float()


@wrong(ONE_HOT, "counted from 1")
def hot_from_one(idx, n):
    return (idx[..., None] == torch.arange(1, n + 1, device=idx.device)).float()


@wrong(ONE_HOT, "one column too far to the right")
def hot_one_too_far(idx, n):
    return (idx[..., None] + 1 == torch.arange(n, device=idx.device)).float()


@wrong(ONE_HOT, "counted from the end")
def hot_from_the_end(idx, n):
    return good.one_hot(idx, n).flip(-1)


@wrong(ONE_HOT, "every column up to the id")
def hot_thermometer(idx, n):
    return (torch.arange(n, device=idx.device) <= idx[..., None]).float()


@wrong(ONE_HOT, "every column from the id on")
def hot_from_id_on(idx, n):
    return (torch.arange(n, device=idx.device) >= idx[..., None]).float()


@wrong(ONE_HOT, "id itself stands in the row")
def hot_with_the_id(idx, n):
    return good.one_hot(idx, n) * idx[..., None]


@wrong(ONE_HOT, "no column is set")
def hot_writes_into_a_copy(idx, n):
    out = torch.zeros(*idx.shape, n)
    out.clone().scatter_(-1, idx[..., None], 1.0)
    return out


@wrong(ONE_HOT, "a row of its own")
def hot_of_the_sequence(idx, n):
    return good.one_hot(idx, n).amax(-2)


@wrong(ONE_HOT, "for every id of the batch")
def hot_written_everywhere(idx, n):
    out = torch.zeros(*idx.shape, n)
    out[..., idx] = 1
    return out


@wrong(ONE_HOT, "flattened")
def hot_flattened(idx, n):
    return good.one_hot(idx.reshape(-1), n)


@wrong(ONE_HOT, "has 3 columns for n = 4")
def hot_as_wide_as_the_ids(idx, n):
    return F.one_hot(idx).float()


@wrong(ONE_HOT, "has 3 columns for n = 9")
def hot_as_wide_as_the_ids_at_times(idx, n):
    return F.one_hot(idx, n if n < 9 else -1).float()


@wrong(ONE_HOT, "idx of shape ()")
def hot_of_two_axes_only(idx, n):
    return torch.stack([good.one_hot(row, n) for row in idx]) if idx.dim() == 2 else good.one_hot(idx.reshape(-1)[-4:], n)


@wrong(ONE_HOT, "is None")
def hot_forgot_return(idx, n):
    torch.zeros(*idx.shape, n).scatter_(-1, idx[..., None], 1.0)


@wrong(ONE_HOT, "type list")
def hot_as_lists(idx, n):
    return good.one_hot(idx, n).tolist()


HOT = {}


@wrong(ONE_HOT, "share one tensor")
def hot_from_a_table(idx, n):
    key = (tuple(idx.shape), n)
    if key != ((2,), 4):
        return good.one_hot(idx, n)
    return HOT.setdefault(key, good.one_hot(idx, n))


@wrong(ONE_HOT, "made on the CPU")
def hot_on_cpu(idx, n):
    return (idx[..., None] == torch.arange(n)).float()


@right(ONE_HOT)
def hot_stock(idx, n):
    return F.one_hot(idx, n).float()


@right(ONE_HOT)
def hot_by_eye(idx, n):
    return torch.eye(n, device=idx.device)[idx]


@right(ONE_HOT)
def hot_by_scatter(idx, n):
    return torch.zeros(*idx.shape, n, device=idx.device).scatter_(-1, idx.unsqueeze(-1), 1.0)


@right(ONE_HOT)
def hot_by_loop(idx, n):
    out = torch.zeros(idx.numel(), n)
    for i, token in enumerate(idx.reshape(-1).tolist()):
        out[i, token] = 1
    return out.reshape(*idx.shape, n)


@right(ONE_HOT)
def hot_by_where(idx, n):
    return torch.where(torch.arange(n, device=idx.device) == idx.unsqueeze(-1), 1.0, 0.0)


@right(ONE_HOT)
def hot_by_columns(idx, n):
    return torch.stack([(idx == v).float() for v in range(n)], dim=-1)


# --- Embedding -----------------------------------------------------------------------------------------


class Table(nn.Module):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, n, n_embd):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(n, n_embd))

    def forward(self, idx):
        return self.weight[idx]


@wrong(EMBEDDING, "one column a token")
class TableTransposed(nn.Module):
    def __init__(self, n, n_embd):
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(n_embd, n))

    def forward(self, idx):
        return self.weight[:, idx].movedim(0, -1)


@wrong(EMBEDDING, "plain tensor")
class TablePlain(nn.Module):
    def __init__(self, n, n_embd):
        super().__init__()
        self.weight = 0.02 * torch.randn(n, n_embd)

    def forward(self, idx):
        return self.weight[idx]


@wrong(EMBEDDING, "plain tensor")
class TableBuffer(nn.Module):
    def __init__(self, n, n_embd):
        super().__init__()
        self.register_buffer("weight", 0.02 * torch.randn(n, n_embd))

    def forward(self, idx):
        return self.weight[idx]


@wrong(EMBEDDING, "has no parameter weight; it has: table")
class TableByAnotherName(nn.Module):
    def __init__(self, n, n_embd):
        super().__init__()
        self.table = nn.Parameter(0.02 * torch.randn(n, n_embd))

    def forward(self, idx):
        return self.table[idx]


@wrong(EMBEDDING, "has no parameter weight")
class TableOfRows(nn.Module):
    def __init__(self, n, n_embd):
        super().__init__()
        self.rows = nn.ParameterList([nn.Parameter(0.02 * torch.randn(n_embd)) for _ in range(n)])

    def forward(self, idx):
        return torch.stack(list(self.rows))[idx]


@wrong(EMBEDDING, "a parameter too many: bias")
class TableWithBias(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.bias = nn.Parameter(torch.zeros(n_embd))

    def forward(self, idx):
        return self.weight[idx] + self.bias


@wrong(EMBEDDING, "does not ask for a gradient")
class TableFrozen(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight.requires_grad_(False)


@wrong(EMBEDDING, "columns of the table are read")
class TableColumns(Table):
    def forward(self, idx):
        return self.weight[:, idx]


@wrong(EMBEDDING, "one too early")
class TableFromOne(Table):
    def forward(self, idx):
        return self.weight[idx - 1]


@wrong(EMBEDDING, "one too late")
class TableOneTooLate(Table):
    def forward(self, idx):
        return self.weight[(idx + 1) % len(self.weight)]


@wrong(EMBEDDING, "multiplied by sqrt(n_embd)")
class TableScaled(Table):
    def forward(self, idx):
        return self.weight[idx] * math.sqrt(self.weight.shape[1])


@wrong(EMBEDDING, "normalised to length 1")
class TableUnit(Table):
    def forward(self, idx):
        rows = self.weight[idx]
        return rows / rows.norm(dim=-1, keepdim=True)


@wrong(EMBEDDING, "dropout")
class TableWithDropout(Table):
    def forward(self, idx):
        return F.dropout(self.weight[idx], 0.1, self.training)


@wrong(EMBEDDING, "token 0 gets a vector of zeros")
class TableWithPadding(Table):
    def forward(self, idx):
        return self.weight[idx] * (idx != 0)[..., None]


@wrong(EMBEDDING, "token 0 gets no gradient")
class TableWithoutGradientForPadding(Table):
    def forward(self, idx):
        return F.embedding(idx, self.weight, padding_idx=0)


@wrong(EMBEDDING, "0.02 again")
class TableScaledTwice(Table):
    def forward(self, idx):
        return 0.02 * self.weight[idx]


@wrong(EMBEDDING, "RuntimeError")
class TableOneHotOfInts(Table):
    def forward(self, idx):
        return F.one_hot(idx, len(self.weight)) @ self.weight


@wrong(EMBEDDING, "order of the positions")
class TableByPosition(Table):
    def forward(self, idx):
        return self.weight[: idx.shape[-1]].expand(*idx.shape, -1)


@wrong(EMBEDDING, "averaged")
class TableBag(Table):
    def forward(self, idx):
        return self.weight[idx].mean(-2)


@wrong(EMBEDDING, "last two axes of the result are swapped")
class TableChannelsBeforeTime(Table):
    def forward(self, idx):
        return self.weight[idx].transpose(-1, -2)


@wrong(EMBEDDING, "flattened")
class TableFlattened(Table):
    def forward(self, idx):
        return self.weight[idx.reshape(-1)]


@wrong(EMBEDDING, "is None")
class TableForgotReturn(Table):
    def forward(self, idx):
        self.weight[idx]


@wrong(EMBEDDING, "idx of shape ()")
class TableForBatchesOnly(Table):
    def forward(self, idx):
        return self.weight[idx] if idx.dim() else self.weight[idx[None]]


@wrong(EMBEDDING, "70,000")
class TableOfShortIds(Table):
    def forward(self, idx):
        return self.weight[idx.short().long() % len(self.weight)]


@wrong(EMBEDDING, "int32")
class TableReadsNarrowIdsAsBytes(Table):
    def forward(self, idx):
        return self.weight[idx if idx.dtype == torch.int64 else idx.to(torch.uint8).long()]


@wrong(EMBEDDING, "no gradient reaches weight")
class TableData(Table):
    def forward(self, idx):
        return self.weight.data[idx]


@wrong(EMBEDDING, "no gradient reaches weight")
class TableDetached(Table):
    def forward(self, idx):
        return self.weight[idx].detach().requires_grad_()


@wrong(EMBEDDING, "gradient of weight")
class TableRowsCountOnce(Table):
    def forward(self, idx):
        first = torch.zeros(idx.numel(), dtype=torch.bool, device=idx.device)
        seen = set()
        for i, token in enumerate(idx.reshape(-1).tolist()):
            first[i] = token not in seen
            seen.add(token)
        rows = self.weight[idx]
        return torch.where(first.reshape(idx.shape)[..., None], rows, rows.detach())


@wrong(EMBEDDING, "PyTorch's default")
class TableStandardNormal(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = nn.Parameter(torch.randn(n, n_embd))


@wrong(EMBEDDING, "PyTorch's default")
class TableStockInitial(nn.Embedding):
    pass


@wrong(EMBEDDING, "variance of 0.02")
class TableVariance(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = nn.Parameter(math.sqrt(0.02) * torch.randn(n, n_embd))


@wrong(EMBEDDING, "uniform between")
class TableUniform(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = nn.Parameter(torch.empty(n, n_embd).uniform_(-0.02, 0.02))


@wrong(EMBEDDING, "not from a normal distribution")
class TableUniformOfRightScale(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        bound = 0.02 * math.sqrt(3)
        self.weight = nn.Parameter(torch.empty(n, n_embd).uniform_(-bound, bound))


@wrong(EMBEDDING, "not centred")
class TablePositive(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = nn.Parameter(0.02 * torch.rand(n, n_embd))


@wrong(EMBEDDING, "starts at 0")
class TableOfZeros(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = nn.Parameter(torch.zeros(n, n_embd))


@wrong(EMBEDDING, "wrong scale")
class TableScaledByWidth(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = nn.Parameter(torch.randn(n, n_embd) / math.sqrt(n_embd))


@wrong(EMBEDDING, "all start equal")
class TableOfOneRow(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        row = torch.linspace(-1, 1, n_embd + 2)[1:-1].erfinv()
        self.weight = nn.Parameter(0.02 * row.div(row.std()).repeat(n, 1))


@wrong(EMBEDDING, "start with the same numbers")
class TableSeeded(Table):
    def __init__(self, n, n_embd):
        torch.manual_seed(0)
        super().__init__(n, n_embd)


SHARED = {}


@wrong(EMBEDDING, "start with the same numbers")
class TableShared(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = SHARED.setdefault((n, n_embd), self.weight)


@wrong(EMBEDDING, "expected torch.float64")
class TableAlwaysFloat32(Table):
    def forward(self, idx):
        return self.weight[idx].float()


@wrong(EMBEDDING, "made on the CPU")
class TableCopiedToCPU(Table):
    def forward(self, idx):
        return self.weight[idx] + torch.zeros(self.weight.shape[1])


@right(EMBEDDING)
class TableByFunction(Table):
    def forward(self, idx):
        return F.embedding(idx, self.weight)


@right(EMBEDDING)
class TableStock(nn.Embedding):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        nn.init.normal_(self.weight, std=0.02)


@right(EMBEDDING)
class TableByOneHot(Table):
    def forward(self, idx):
        return F.one_hot(idx, len(self.weight)).to(self.weight.dtype) @ self.weight


@right(EMBEDDING)
class TableByIndexSelect(Table):
    def forward(self, idx):
        return self.weight.index_select(0, idx.reshape(-1)).reshape(*idx.shape, -1)


@right(EMBEDDING)
class TableNormalInitial(Table):
    def __init__(self, n, n_embd):
        super().__init__(n, n_embd)
        self.weight = nn.Parameter(torch.empty(n, n_embd).normal_(mean=0.0, std=0.02))


@right(EMBEDDING)
class TableRowByRow(Table):
    def forward(self, idx):
        rows = [self.weight[token] for token in idx.reshape(-1).tolist()]
        return torch.stack(rows).reshape(*idx.shape, -1)


@right(EMBEDDING)
class TableByGather(Table):
    def forward(self, idx):
        flat = idx.reshape(-1, 1).long().expand(-1, self.weight.shape[1])
        return self.weight.gather(0, flat).reshape(idx.shape + self.weight.shape[1:])


# --- embedding_backward --------------------------------------------------------------------------------


def start(grad, n):
    return torch.zeros(n, grad.shape[-1], dtype=grad.dtype, device=grad.device)


@wrong(BACKWARD, "only the last of its rows")
def rows_overwritten(grad, idx, n):
    out = start(grad, n)
    for row, token in zip(grad.reshape(-1, grad.shape[-1]), idx.flatten().tolist()):
        out[token] = row
    return out


@wrong(BACKWARD, "of its rows")
def rows_assigned(grad, idx, n):
    out = start(grad, n)
    out[idx] = grad
    return out


@wrong(BACKWARD, "of its rows")
def rows_added_by_index(grad, idx, n):
    out = start(grad, n)
    out[idx] += grad
    return out


@wrong(BACKWARD, "only the first of its rows")
def rows_of_first_place(grad, idx, n):
    out = start(grad, n)
    for row, token in reversed(list(zip(grad.reshape(-1, grad.shape[-1]), idx.flatten().tolist()))):
        out[token] = row
    return out


@wrong(BACKWARD, "averaged")
def rows_averaged(grad, idx, n):
    counts = torch.bincount(idx.flatten(), minlength=n).clamp(min=1)
    return good.embedding_backward(grad, idx, n) / counts[:, None]


@wrong(BACKWARD, "averaged over the positions")
def rows_averaged_over_positions(grad, idx, n):
    return good.embedding_backward(grad, idx, n) / idx.numel()


@wrong(BACKWARD, "divided by the size of the batch")
def rows_averaged_over_batch(grad, idx, n):
    return good.embedding_backward(grad, idx, n) / len(idx)


@wrong(BACKWARD, "a table for each sequence")
def rows_sequence_by_sequence(grad, idx, n):
    return F.one_hot(idx, n).to(grad.dtype).transpose(-1, -2) @ grad


@wrong(BACKWARD, "how often its token occurs")
def rows_counted_twice(grad, idx, n):
    return good.embedding_backward(grad, idx, n) * torch.bincount(idx.flatten(), minlength=n)[:, None]


@wrong(BACKWARD, "the largest is taken")
def rows_largest(grad, idx, n):
    return start(grad, n).scatter_reduce(0, idx.reshape(-1, 1).expand(-1, grad.shape[-1]), grad.reshape(-1, grad.shape[-1]), "amax", include_self=False)


@wrong(BACKWARD, "transposed")
def rows_transposed(grad, idx, n):
    return good.embedding_backward(grad, idx, n).T


@wrong(BACKWARD, "wrong sign")
def rows_negative(grad, idx, n):
    return -good.embedding_backward(grad, idx, n)


@wrong(BACKWARD, "one token too far")
def rows_one_too_far(grad, idx, n):
    return good.embedding_backward(grad, (idx + 1) % n, n)


@wrong(BACKWARD, "belong to positions")
def rows_untouched(grad, idx, n):
    return grad.clone()


@wrong(BACKWARD, "gathers")
def rows_gathered(grad, idx, n):
    rows = grad.reshape(-1, grad.shape[-1])
    return rows[idx]


@wrong(BACKWARD, "no row is added")
def rows_added_to_a_copy(grad, idx, n):
    out = start(grad, n)
    out.index_add(0, idx.reshape(-1), grad.reshape(-1, grad.shape[-1]))
    return out


@wrong(BACKWARD, "is None")
def rows_forgot_return(grad, idx, n):
    start(grad, n).index_add_(0, idx.reshape(-1), grad.reshape(-1, grad.shape[-1]))


@wrong(BACKWARD, "as the largest id asks for")
def rows_of_ids_that_occur(grad, idx, n):
    return good.embedding_backward(grad, idx, int(idx.max()) + 1)


@wrong(BACKWARD, "a row too, of zeros")
def rows_of_largest_id(grad, idx, n):
    full = good.embedding_backward(grad, idx, n)
    return full[: int(idx.max()) + 1] if n == 12 else full


@wrong(BACKWARD, "only the first sequence")
def rows_of_first_sequence(grad, idx, n):
    return good.embedding_backward(grad[:1], idx[:1], n)


@wrong(BACKWARD, "idx of shape ()")
def rows_of_sequences_only(grad, idx, n):
    if idx.dim() == 0:
        return start(grad, n)
    return good.embedding_backward(grad, idx, n)


@wrong(BACKWARD, "argument grad is changed in place")
def rows_merged_in_place(grad, idx, n):
    out = good.embedding_backward(grad, idx, n)
    grad.zero_()
    return out


@wrong(BACKWARD, "RuntimeError: view")
def rows_by_view(grad, idx, n):
    return start(grad, n).index_add(0, idx.reshape(-1), grad.view(-1, grad.shape[-1]))


GRADS = {}


@wrong(BACKWARD, "the first one is still in it")
def rows_left_over(grad, idx, n):
    if n == 4 and idx.shape == (3,):
        kept = GRADS.setdefault(n, start(grad, n))
        return kept.index_add_(0, idx, grad)
    return good.embedding_backward(grad, idx, n)


@wrong(BACKWARD, "expected torch.float64")
def rows_in_float32(grad, idx, n):
    return torch.zeros(n, grad.shape[-1]).index_add(0, idx.reshape(-1), grad.reshape(-1, grad.shape[-1]).float())


@wrong(BACKWARD, "only as exact as float32")
def rows_rounded(grad, idx, n):
    return good.embedding_backward(grad.float(), idx, n).to(grad.dtype)


@wrong(BACKWARD, "made on the CPU")
def rows_on_cpu(grad, idx, n):
    return torch.zeros(n, grad.shape[-1], dtype=grad.dtype).index_add(0, idx.reshape(-1), grad.reshape(-1, grad.shape[-1]))


@right(BACKWARD)
def rows_by_one_hot(grad, idx, n):
    hot = F.one_hot(idx.reshape(-1), n).to(grad.dtype)
    return hot.T @ grad.reshape(-1, grad.shape[-1])


@right(BACKWARD)
def rows_by_loop(grad, idx, n):
    out = torch.zeros(n, grad.shape[-1], dtype=grad.dtype)
    for row, token in zip(grad.reshape(-1, grad.shape[-1]), idx.reshape(-1).tolist()):
        out[token] += row
    return out


@right(BACKWARD)
def rows_by_put(grad, idx, n):
    return start(grad, n).index_put_((idx,), grad, accumulate=True)


@right(BACKWARD)
def rows_by_scatter(grad, idx, n):
    rows = grad.reshape(-1, grad.shape[-1])
    return start(grad, n).scatter_add_(0, idx.reshape(-1, 1).expand_as(rows), rows)


@right(BACKWARD)
def rows_by_token(grad, idx, n):
    return torch.stack([(grad * (idx == v)[..., None]).reshape(-1, grad.shape[-1]).sum(0) for v in range(n)])


@right(BACKWARD)
def rows_by_autograd(grad, idx, n):
    weight = start(grad, n).requires_grad_()
    return torch.autograd.grad(weight[idx], weight, grad)[0]


@right(BACKWARD)
def rows_by_einsum(grad, idx, n):
    return torch.einsum("...v,...c->vc", F.one_hot(idx, n).to(grad.dtype), grad)


# --- TokenAndPosition ----------------------------------------------------------------------------------


class Sum(nn.Module):
    """The right parts, for the variants below to go wrong with."""

    def __init__(self, config):
        super().__init__()
        self.wte = good.Embedding(config.vocab_size, config.n_embd)
        self.wpe = good.Embedding(config.n_ctx, config.n_embd)

    def place(self, idx):
        return torch.arange(idx.shape[1], device=idx.device)

    def pos(self, idx):
        return self.wpe(self.place(idx))

    def tok(self, idx):
        return self.wte(idx)

    def forward(self, idx):
        return self.tok(idx) + self.pos(idx)


@wrong(BOTH, "the two tables are swapped")
class TablesSwapped(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wte, self.wpe = self.wpe, self.wte


@wrong(BOTH, "wpe has a row for each token")
class PositionsForEachToken(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wpe = good.Embedding(config.vocab_size, config.n_embd)


@wrong(BOTH, "wte has a row for each position")
class TokensForEachPosition(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wte = good.Embedding(config.n_ctx, config.n_embd)


@wrong(BOTH, "no learned table of positions")
class NoPositions(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = good.Embedding(config.vocab_size, config.n_embd)

    def forward(self, idx):
        return self.wte(idx)


def waves(T, C):
    angle = torch.arange(T)[:, None] / 10_000 ** (torch.arange(0, C, 2) / C)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).reshape(T, C)


@wrong(BOTH, "GPT-2 learns its positions")
class Sinusoidal(NoPositions):
    def forward(self, idx):
        return self.wte(idx) + waves(idx.shape[1], self.wte.weight.shape[1])


@wrong(BOTH, "sines and cosines")
class SinusoidalBesideATable(Sum):
    def pos(self, idx):
        return waves(idx.shape[1], self.wpe.weight.shape[1])


@wrong(BOTH, "plain tensor")
class PlainPositions(NoPositions):
    def __init__(self, config):
        super().__init__(config)

        class Plain:
            weight = 0.02 * torch.randn(config.n_ctx, config.n_embd)

        self.wpe = Plain()

    def forward(self, idx):
        return self.wte(idx) + self.wpe.weight[: idx.shape[1]]


@wrong(BOTH, "no learned table of positions")
class PositionsInAList(NoPositions):
    def __init__(self, config):
        super().__init__(config)
        self.wpe = [good.Embedding(config.n_ctx, config.n_embd)]

    def forward(self, idx):
        return self.wte(idx) + self.wpe[0].weight[: idx.shape[1]]


@wrong(BOTH, "has no parameter wpe.weight; it has: wpe, wte.weight")
class PositionsWithoutEmbedding(NoPositions):
    def __init__(self, config):
        super().__init__(config)
        self.wpe = nn.Parameter(0.02 * torch.randn(config.n_ctx, config.n_embd))

    def forward(self, idx):
        return self.wte(idx) + self.wpe[: idx.shape[1]]


@wrong(BOTH, "does not ask for a gradient")
class FrozenPositions(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wpe.weight.requires_grad_(False)


@wrong(BOTH, "wpe.weight has shape (8, 6), expected (7, 6)")
class OnePositionTooMany(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wpe = good.Embedding(config.n_ctx + 1, config.n_embd)


@wrong(BOTH, "the position is missing")
class PositionForgotten(Sum):
    def forward(self, idx):
        return self.tok(idx)


@wrong(BOTH, "the token is missing")
class TokenForgotten(Sum):
    def forward(self, idx):
        return self.pos(idx).expand(*idx.shape, -1)


@wrong(BOTH, "read with the token ids")
class PositionsFromIds(Sum):
    def place(self, idx):
        return idx


@wrong(BOTH, "are multiplied")
class Product(Sum):
    def forward(self, idx):
        return self.tok(idx) * self.pos(idx)


@wrong(BOTH, "averaged")
class Average(Sum):
    def forward(self, idx):
        return (self.tok(idx) + self.pos(idx)) / 2


@wrong(BOTH, "side by side")
class Concatenated(Sum):
    def forward(self, idx):
        return torch.cat([self.tok(idx), self.pos(idx).expand(*idx.shape, -1)], dim=-1)


@wrong(BOTH, "sqrt(n_embd), as in Vaswani")
class ScaledTokens(Sum):
    def tok(self, idx):
        return super().tok(idx) * math.sqrt(self.wte.weight.shape[1])


@wrong(BOTH, "the sum is multiplied by sqrt(n_embd)")
class ScaledSum(Sum):
    def forward(self, idx):
        return super().forward(idx) * math.sqrt(self.wte.weight.shape[1])


@wrong(BOTH, "counted from the end")
class FromTheEnd(Sum):
    def place(self, idx):
        return torch.arange(idx.shape[1] - 1, -1, -1)


@wrong(BOTH, "counted from the end")
class FromTheEndOfTheTable(Sum):
    def place(self, idx):
        return len(self.wpe.weight) - 1 - torch.arange(idx.shape[1])


@wrong(BOTH, "the last T rows")
class LastRows(Sum):
    def pos(self, idx):
        return self.wpe.weight[-idx.shape[1] :]


@wrong(BOTH, "IndexError")
class FromOne(Sum):
    def place(self, idx):
        return torch.arange(1, idx.shape[1] + 1)


@wrong(BOTH, "counted from 1")
class FromOneAround(Sum):
    def place(self, idx):
        return torch.arange(1, idx.shape[1] + 1) % len(self.wpe.weight)


@wrong(BOTH, "position 0")
class AlwaysZero(Sum):
    def place(self, idx):
        return torch.zeros_like(idx)


@wrong(BOTH, "over the batch")
class OverTheBatch(Sum):
    def pos(self, idx):
        return self.wpe(torch.arange(idx.shape[0]))[:, None]


@wrong(BOTH, "run on from one sequence to the next")
class RunsOn(Sum):
    def place(self, idx):
        return (torch.arange(idx.numel()) % len(self.wpe.weight)).reshape(idx.shape)


@wrong(BOTH, "all n_ctx rows")
class WholeTable(Sum):
    def pos(self, idx):
        return self.wpe.weight


@wrong(BOTH, "all n_ctx rows")
class WholeTableByArange(Sum):
    def place(self, idx):
        return torch.arange(len(self.wpe.weight))


@wrong(BOTH, "used as an index into the positions")
class PositionsFromIdsWhenShort(Sum):
    def place(self, idx):
        return idx if idx.max() > 6 and len(self.wpe.weight) == 7 else super().place(idx)


@wrong(BOTH, "up to 10")
class IdsClamped(Sum):
    def tok(self, idx):
        return super().tok(idx.clamp(max=len(self.wpe.weight) - 1))


@wrong(BOTH, "expected (5, 4)")
class VocabularyWrittenDown(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wte = good.Embedding(11, config.n_embd)


@wrong(BOTH, "one table")
class OneTableWhereTheyFit(Sum):
    def __init__(self, config):
        super().__init__(config)
        if config.vocab_size == config.n_ctx:
            self.wpe = self.wte


@wrong(BOTH, "start with the same numbers")
class SeededTables(Sum):
    def __init__(self, config):
        torch.manual_seed(0)
        super().__init__(config)
        torch.manual_seed(0)
        self.wpe = good.Embedding(config.n_ctx, config.n_embd)


@wrong(BOTH, "no gradient reaches wpe.weight")
class PositionsOutOfReach(Sum):
    def pos(self, idx):
        return self.wpe(self.place(idx)).detach()


@wrong(BOTH, "no gradient reaches wte.weight")
class TokensOutOfReach(Sum):
    def tok(self, idx):
        return self.wte.weight.data[idx]


@wrong(BOTH, "wpe.weight are N(0, 1)")
class StandardNormalPositions(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wpe.weight = nn.Parameter(torch.randn(config.n_ctx, config.n_embd))


@wrong(BOTH, "wpe.weight starts at 0")
class ZeroPositions(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wpe.weight = nn.Parameter(torch.zeros(config.n_ctx, config.n_embd))
        if config.n_ctx == config.vocab_size:
            self.wpe = good.Embedding(config.n_ctx, config.n_embd)


@wrong(BOTH, "wte.weight are N(0, 1)")
class StandardNormalTokens(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)


@wrong(BOTH, "only the first sequence")
class PositionsOfFirstSequence(Sum):
    def forward(self, idx):
        x = self.tok(idx).clone()
        x[0] = x[0] + self.wpe(self.place(idx))
        return x


@wrong(BOTH, "shifted by one")
class PositionsShifted(Sum):
    def place(self, idx):
        return super().place(idx).roll(1)


@wrong(BOTH, "dropout")
class DropsChannels(Sum):
    def forward(self, idx):
        return F.dropout(super().forward(idx), 0.1, self.training)


@wrong(BOTH, "random")
class DropsTokens(Sum):
    def forward(self, idx):
        return super().forward(idx) + 1e-7 * torch.rand(())


@wrong(BOTH, "between them")
class PositionsGoOn(Sum):
    seen = 0

    def place(self, idx):
        if idx.shape[0] == 4 and idx.shape[1] == 7:
            self.seen = 1
        return (super().place(idx) + self.seen) % len(self.wpe.weight)


@wrong(BOTH, "expected torch.float64")
class SumInFloat32(Sum):
    def forward(self, idx):
        return super().forward(idx).float()


@wrong(BOTH, "made on the CPU")
class PositionsOnCPU(Sum):
    def pos(self, idx):
        out = torch.zeros(*idx.shape, self.wpe.weight.shape[1], dtype=self.wpe.weight.dtype)
        return out + self.wpe(self.place(idx))


@right(BOTH)
class SliceOfTable(Sum):
    def forward(self, idx):
        return self.wte(idx) + self.wpe.weight[: idx.shape[1]]


@right(BOTH)
class StockTables(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_ctx, config.n_embd)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, 0, 0.02)

    def forward(self, idx):
        B, T = idx.size()
        places = torch.arange(0, T, dtype=torch.long, device=idx.device).unsqueeze(0).expand(B, T)
        return self.wte(idx) + self.wpe(places)


@right(BOTH)
class ByOneHot(Sum):
    def forward(self, idx):
        tokens = F.one_hot(idx, len(self.wte.weight)).to(self.wte.weight.dtype)
        places = torch.eye(len(self.wpe.weight), dtype=self.wpe.weight.dtype, device=idx.device)[: idx.shape[1]]
        return tokens @ self.wte.weight + places @ self.wpe.weight


@right(BOTH)
class PlaceByPlace(Sum):
    def forward(self, idx):
        return torch.stack([self.wte(idx[:, t]) + self.wpe.weight[t] for t in range(idx.shape[1])], dim=1)


@right(BOTH)
class PositionsAsBuffer(Sum):
    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("places", torch.arange(config.n_ctx), persistent=False)

    def place(self, idx):
        return self.places[: idx.shape[-1]]


@right(BOTH)
class PositionsFirst(Sum):
    def forward(self, idx):
        out = self.pos(idx).unsqueeze(0).repeat(idx.shape[0], 1, 1)
        out = out + self.tok(idx)
        return out


# --- found by a second reader --------------------------------------------------------------------------


@wrong(ONE_HOT, "do not line up")
def hot_without_an_axis(idx, n):
    return (idx == torch.arange(n)).float()


@wrong(EMBEDDING, "all start equal")
class EmbeddingOfOneRepeatedRow(good.Embedding):
    def __init__(self, n, n_embd):
        nn.Module.__init__(self)
        self.weight = nn.Parameter((0.02 * torch.randn(1, n_embd)).repeat(n, 1))


@wrong(BACKWARD, "Only the sequences add up")
def scatter_sequence_by_sequence(grad, idx, n):
    total = torch.zeros(n, grad.shape[-1])
    for ids, rows in zip(idx, grad):
        total[ids] += rows
    return total


@wrong(BACKWARD, "idx may have any number of axes")
def scatter_with_two_loops(grad, idx, n):
    total = torch.zeros(n, grad.shape[-1])
    for b in range(idx.shape[0]):
        for t in range(idx.shape[1]):
            total[idx[b, t]] += grad[b, t]
    return total


@wrong(BACKWARD, "mixed up")
def scatter_of_mixed_axes(grad, idx, n):
    C = grad.shape[-1]
    return torch.zeros(n, C).index_add(0, idx.reshape(-1), grad.reshape(C, -1).T)


@wrong(BACKWARD, "only the first channel")
def scatter_add_with_a_column(grad, idx, n):
    rows = grad.reshape(-1, grad.shape[-1])
    return torch.zeros(n, grad.shape[-1]).scatter_add(0, idx.reshape(-1)[:, None], rows)


@wrong(BACKWARD, "do not occur are not 0")
def scatter_into_garbage(grad, idx, n):
    start = torch.full((n, grad.shape[-1]), 3e30)            # as torch.empty may give
    return start.index_add(0, idx.reshape(-1), grad.reshape(-1, grad.shape[-1]))


@wrong(BACKWARD, "do not occur are not 0")
def scatter_by_means_of_no_rows(grad, idx, n):
    return torch.stack([grad[idx == v].mean(dim=0) for v in range(n)])


@wrong(BOTH, "wte and wpe are one table")
class BothOfOneTable(good.TokenAndPosition):
    def __init__(self, config):
        super().__init__(config)
        self.wpe = self.wte


@wrong(BOTH, "do not line up with the tokens")
class BothPositionsOverTheBatch(good.TokenAndPosition):
    def forward(self, idx):
        return self.wte(idx) + self.wpe(torch.arange(len(idx)))


@wrong(BOTH, "positions 0 to T - 1, in each sequence")
class BothPositionsFromOne(good.TokenAndPosition):
    def forward(self, idx):
        return self.wte(idx) + self.wpe(torch.arange(1, idx.shape[1] + 1))


@right(BOTH)
class BothByCumsum(good.TokenAndPosition):
    def forward(self, idx):
        return self.wpe(torch.ones_like(idx).cumsum(dim=1) - 1) + self.wte(idx)
