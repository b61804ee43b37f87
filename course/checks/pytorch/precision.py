"""Checks of lesson 18: precision. The oracles are float64 softmax, a GPT of a page, torch.optim and torch.amp.GradScaler."""
import contextlib
import copy
import math
from types import SimpleNamespace

import torch
from torch import nn

from course.checks import checks
from course.checks.pytorch import call, close, difference, equal, fail, gradients_close, is_tensor, keeps_device, rand, rand_ids
from course.checks.pytorch import attention as of_attention
from course.precision import LayerPrecision

ATTENTION = "pytorch.precision.attention_in"
MODEL = "pytorch.precision.PrecisionGPT"
SCALER = "pytorch.precision.LossScaler"

HALF = torch.float16
RULES = [
    ("expected scalar type", "two dtypes meet in a product, and PyTorch refuses that: a cast is missing at one of the two."),
    ("the same dtype", "two dtypes meet in a product, and PyTorch refuses that: a cast is missing at one of the two."),
    ("'NoneType' and", "a parameter that took no part in the loss has None for a gradient: there is nothing to divide."),
]


@contextlib.contextmanager
def in_plain_words():
    """An error of PyTorch inside that one of RULES knows is raised with these words before its own."""
    try:
        yield
    except (RuntimeError, TypeError) as error:
        words = next((words for mark, words in RULES if mark in str(error)), None)
        if words is None or type(error) not in (RuntimeError, TypeError):
            raise
        raise type(error)(f"{words} PyTorch says: {str(error).splitlines()[0]}").with_traceback(error.__traceback__) from None


def attend(attention_in, *args):
    with in_plain_words():
        return call(attention_in, *args)


# --- attention_in --------------------------------------------------------------------------------------


def in_steps(q, k, v, mask, dtype, products=None, last=None, divide="before"):
    """Attention with a dtype for each step; products and last default to what is asked for."""
    products, last, root = products or q.dtype, last or v.dtype, math.sqrt(q.shape[-1])
    q, k = q.to(products), k.to(products)
    scores = (q / root) @ k.transpose(-2, -1) if divide == "before" else q @ k.transpose(-2, -1)
    if divide == "product":
        scores = scores / root
    scores = scores.to(dtype)
    if divide == "softmax":
        scores = scores / root
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    e = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = e * (1 / e.sum(-1, keepdim=True))
    return (weights.to(last) @ v.to(last)).to(v.dtype)


@checks(ATTENTION, "the dtype of the result")
def attention_dtype(attention_in):
    for given in (torch.float32, HALF, torch.bfloat16):
        for dtype in (torch.float32, HALF):
            q, k, v = (rand(2, 5, 4, seed=i, dtype=given) for i in range(3))
            got = attend(attention_in, q, k, v, None, dtype)
            if isinstance(got, torch.Tensor) and got.dtype != given and got.dtype == dtype:
                fail(
                    f"q, k and v are {given} and the result is {got.dtype}: only the softmax runs in another dtype.",
                    look="the weights, on their way from the softmax to the product with v",
                )
            is_tensor(got, (2, 5, 4), given)


@checks(ATTENTION, "values in float32")
def attention_values(attention_in):
    q, k, v = rand(2, 3, 6, 8, seed=1), rand(2, 3, 7, 8, seed=2), rand(2, 3, 7, 5, seed=3)
    for mask in (of_attention.expected_mask(6, 7), None, rand(2, 1, 6, 7, seed=4) > -0.5):
        if mask is not None:
            mask = mask | (torch.arange(7) == 2)                  # nobody is left without a key
        got, want, known = call(attention_in, q, k, v, mask, torch.float32), of_attention.sdpa(q, k, v, mask), of_attention.attention_mistakes(q, k, v, mask)
        rounded(got, want, 2e-6, known)
        close(got, want, 2e-6, known=known, look="lesson 04: nothing but dtypes changes")


def rounded(got, want, atol, known=(), of="the result"):
    """Fails if got is want but for digits, and none of the known mistakes: something ran in 16 bits where all is float32."""
    if equal(got, want, atol) or not equal(got, want, 0.03) or got.dtype != want.dtype:
        return
    if not any(equal(got, value() if callable(value) else value, 1e-5) for _, value in known):
        fail(
            f"all dtypes asked for are float32, and {of} has the digits of 16 bits: a step ran in another dtype.",
            example=difference(got, want, of), look="dtypes that are written out: .half(), torch.float16, autocast",
        )


@checks(ATTENTION, "the softmax runs in dtype")
def softmax_dtype(attention_in):
    q, k = rand(40, 16, seed=5), rand(64, 16, seed=6)
    weights = call(attention_in, q, k, torch.eye(64), None, HALF)          # float32 around a softmax in float16
    if not torch.equal(weights, weights.half().float()):
        fail(
            "dtype is float16, and the weights have more digits than float16 holds: the softmax did not run in it.",
            look="where the scores are turned into dtype: after the product, before the softmax",
        )
    through = in_steps(q, k, torch.eye(64), None, HALF)
    exact = in_steps(q, k, torch.eye(64), None, torch.float32).half().float()
    if (weights == exact).float().mean() > 0.97 and (through == exact).float().mean() < 0.9:
        fail("dtype is float16, and only the weights are: the softmax itself ran in float32.", look="the scores are turned into dtype before the softmax, not the weights after it")
    q, k = (rand(*s, seed=i).mul(2).round().to(HALF) for i, s in ((7, (40, 16)), (8, (64, 16))))   # scores without rounding
    weights = call(attention_in, q, k, torch.eye(64, dtype=HALF), None, torch.float32).double()
    want = ((q.double() / 4) @ k.double().T).softmax(-1)
    half_a_step = want * 2**-11 * 1.05 + 2**-25
    if (weights - want).abs().gt(half_a_step).float().mean() > 0.01:
        fail(
            "dtype is float32, and the weights are off by more than their own rounding to float16: the softmax did not run in float32.",
            example=f"{int((weights - want).abs().gt(half_a_step).sum())} of {weights.numel()} weights are not the nearest number of float16",
            look="where the scores are turned into dtype",
        )


@checks(ATTENTION, "the products run in the dtype of q and v")
def product_dtype(attention_in):
    q = torch.zeros(1, 16, dtype=HALF)
    q[0, :2] = torch.tensor([8.0, 4.0])                       # divided by sqrt(16): 2 and 1
    k = torch.zeros(2, 16, dtype=HALF)
    k[:, 0], k[0, 1] = 1024, 1                                # scores 2049 and 2048; float16 has no 2049
    v = torch.tensor([[1.0], [0.0]], dtype=HALF)
    got = call(attention_in, q, k, v, None, torch.float32)
    is_tensor(got, (1, 1), HALF)
    if abs(got.item() - 0.5) > 0.1:
        fail(
            "q and k are float16, and the scores are more exact than a product in float16: it ran in a wider dtype.",
            example=f"scores 2049 and 2048 are one number in float16; the weight of the first is {got.item():.2f}, expected 0.50",
            look="which dtype q and k have at the product: the policy for the products is theirs",
        )
    v = torch.tensor([[2560.0], [0.0], [0.0]], dtype=HALF)
    got = call(attention_in, torch.zeros(1, 16, dtype=HALF), torch.zeros(3, 16, dtype=HALF), v, None, torch.float32)
    if abs(got.item() - 853) > 0.3:
        fail(
            "v is float16, and the product with it ran in a wider dtype.",
            example=f"three equal weights and values 2560, 0, 0 in float16: {got.item():g}, expected 853",
            look="the weights get the dtype of v before the product",
        )


@checks(ATTENTION, "large scores")
def large_scores(attention_in):
    d = 64
    q = torch.full((1, d), 40.0, dtype=HALF)
    k = torch.stack([torch.full((d,), 40.0), torch.full((d,), 39.0)]).to(HALF)   # 102400 before the division, 12800 after
    if not call(attention_in, q.float(), k.float(), torch.eye(2), None, torch.float32).isfinite().all():
        fail(
            "a softmax of large scores gives nan: exp overflows. It must subtract the largest score of a row first.",
            example="scores 12800 and 12480 in float32", look="softmax of lesson 02 does it",
        )
    got = call(attention_in, q, k, torch.tensor([[1.0], [0.0]], dtype=HALF), None, torch.float32)
    is_tensor(got, (1, 1), HALF)
    if not equal(got, torch.ones(1, 1), 1e-3):
        fail(
            "the product of q and k overflows float16 although the scores fit: it is divided by sqrt(d) too late.",
            example=f"d = 64, q of 40s, k of 40s: 102400 is beyond 65504, 12800 is not; the result is {got.item():g}, expected 1",
            look="divide q, before the product",
        )


@checks(ATTENTION, "hidden keys")
def hidden_keys(attention_in):
    for given, dtype in ((torch.float32, torch.float32), (HALF, HALF), (HALF, torch.float32), (torch.float32, HALF)):
        size = 100.0 if given == dtype == torch.float32 else 1.0
        q = torch.full((1, 4), 100.0, dtype=given)
        k = torch.stack([torch.full((4,), -150.0 * size), torch.full((4,), 150.0 * size)]).to(given)      # scores -30000 and 30000, or more
        mask = torch.tensor([[True, False]])
        got = call(attention_in, q, k, torch.tensor([[1.0], [2.0]], dtype=given), mask, dtype)
        is_tensor(got, (1, 1), given)
        if got.item() != 1:
            fail(
                "a hidden key is seen: it gets a large negative number and not -inf, and a score may be lower still.",
                example=f"scores {-30000 * size:g} and (hidden) {30000 * size:g} in {dtype}: the result is {got.item():g}, the value of the visible key is 1",
                look="what masked_fill writes",
            )


@checks(ATTENTION, "gradients")
def attention_gradients(attention_in):
    q, k, v = rand(2, 5, 8, seed=11), rand(2, 5, 8, seed=12), rand(2, 5, 3, seed=13)
    mask = of_attention.expected_mask(5, 5)
    gradients_close(
        lambda *x: attention_in(*x, mask, torch.float32), lambda *x: nn.functional.scaled_dot_product_attention(*x, attn_mask=mask), (q, k, v), 1e-5, "qkv"
    )
    halves = [x.to(HALF).requires_grad_() for x in (q, k, v)]
    got = attention_in(*halves, mask, torch.float32)
    if not got.requires_grad:
        fail("no gradient flows through the result in float16.", look=".detach(), .data, torch.tensor(...) and NumPy cut the graph")
    got.float().sum().backward()
    for name, x in zip("qkv", halves):
        if x.grad is None or x.grad.dtype != HALF:
            fail(f"no gradient in float16 reaches {name}.", look="casts by .to(dtype) carry gradients back; torch.tensor(...) does not")


@checks(ATTENTION, "on the device of q")
def attention_device(attention_in):
    q, k, v = rand(2, 5, 8, seed=14), rand(2, 5, 8, seed=15), rand(2, 5, 8, seed=16)
    keeps_device(attention_in, q, k, v, of_attention.expected_mask(5, 5), HALF)


# --- PrecisionGPT --------------------------------------------------------------------------------------


class Norm(nn.Module):
    """Statistics in the dtype of x, as the LayerNorm of lesson 05 has them."""

    def __init__(self, C):
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(C)), nn.Parameter(torch.zeros(C)), 1e-5

    def forward(self, x):
        x = x - x.mean(-1, keepdim=True)
        return self.weight * (x * ((x * x).mean(-1, keepdim=True) + self.eps).rsqrt()) + self.bias


class Rows(nn.Module):
    def __init__(self, n, C):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n, C))

    def forward(self, idx):
        return self.weight[idx]


class Attention(nn.Module):
    def __init__(self, C, n_head):
        super().__init__()
        self.n_head, self.c_attn, self.c_proj = n_head, nn.Linear(C, 3 * C), nn.Linear(C, C)


class Feed(nn.Module):
    def __init__(self, C):
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)


class OneBlock(nn.Module):
    def __init__(self, C, n_head):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = Norm(C), Attention(C, n_head), Norm(C), Feed(C)


class Small(nn.Module):
    """A GPT of lesson 06 as far as PrecisionGPT reads it; its own forward is that of a float32 policy."""

    def __init__(self, vocab_size=11, n_ctx=7, n_layer=2, n_head=3, n_embd=12):
        super().__init__()
        self.config = SimpleNamespace(vocab_size=vocab_size, n_ctx=n_ctx, n_layer=n_layer, n_head=n_head, n_embd=n_embd)
        self.wte, self.wpe, self.ln_f = Rows(vocab_size, n_embd), Rows(n_ctx, n_embd), Norm(n_embd)
        self.h = nn.ModuleList([OneBlock(n_embd, n_head) for _ in range(n_layer)])
        with torch.no_grad():
            for i, (name, p) in enumerate(self.named_parameters()):
                p.copy_(rand(*p.shape, seed=100 + i, scale=0.3) + (1.0 if ".ln" in name or name.startswith("ln") else 0.0) * name.endswith("weight"))

    def forward(self, idx, targets=None):
        logits = expected_logits(self, LayerPrecision().dtypes(torch), idx)
        return logits, None if targets is None else nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def gelu(x):
    return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))


def expected_logits(model, use, idx, without=(), post=False, causal=True, erf=False, parallel=False, swapped=False, one_norm=False, whole=False, blocks=None):
    """The forward of a policy, from torch operations. The other arguments are mistakes."""
    def linear(layer, x, dtype):
        y = x.to(dtype) @ layer.weight.to(dtype).T
        return y if "bias" in without else y + layer.bias.to(dtype)

    T = idx.shape[1]
    mask = of_attention.expected_mask(T, T) if causal else None
    x = model.wte(idx).to(use.embedding)
    if "wpe" not in without:
        x = x + model.wpe(torch.arange(T)).to(use.embedding)
    for block in model.h[:blocks]:
        if swapped:
            x = x + linear(block.mlp.c_proj, gelu(linear(block.mlp.c_fc, block.ln_2(x), use.mlp)), use.mlp)
        start = x
        y = x if "ln_1" in without or post else block.ln_1(x.to(use.norm))
        q, k, v = (
            part.unflatten(-1, (1 if whole else block.attn.n_head, -1)).transpose(1, 2) for part in linear(block.attn.c_attn, y, use.qkv).chunk(3, -1)
        )
        y = in_steps(q, k, v, mask, use.softmax).transpose(1, 2).flatten(-2)
        y = y.to(use.embedding) if "c_proj" in without else linear(block.attn.c_proj, y, use.qkv).to(use.embedding)
        x = y if "residual" in without else x + y
        x = block.ln_1(x.to(use.norm)).to(use.embedding) if post else x
        if swapped:
            continue
        y = start if parallel else x
        y = y if "ln_2" in without or post else (block.ln_1 if one_norm else block.ln_2)(y.to(use.norm))
        y = linear(block.mlp.c_fc, y, use.mlp)
        y = y if "gelu" in without else nn.functional.gelu(y) if erf else gelu(y)
        y = linear(block.mlp.c_proj, y, use.mlp).to(use.embedding)
        x = y if "residual" in without else x + y
        x = block.ln_2(x.to(use.norm)).to(use.embedding) if post else x
    x = x if "ln_f" in without else model.ln_f(x.to(use.norm))
    return (x.to(use.head) @ model.wte.weight.to(use.head).T).float()


MISTAKES = [
    ("the positions are missing: wpe is not added.", {"without": ("wpe",)}),
    ("ln_1 is missing before the attention.", {"without": ("ln_1",)}),
    ("ln_2 is missing before the MLP.", {"without": ("ln_2",)}),
    ("ln_f is missing before the head.", {"without": ("ln_f",)}),
    ("a residual is missing: a block adds to x, it does not replace it.", {"without": ("residual",)}),
    ("the GELU between the two layers of the MLP is missing.", {"without": ("gelu",)}),
    ("c_proj of the attention is missing.", {"without": ("c_proj",)}),
    ("the LayerNorms come after the sums (post-LN); GPT-2 has them before attention and MLP.", {"post": True}),
    ("nothing hides the future: the causal mask is missing.", {"causal": False}),
    ("this is the exact GELU, with erf; GPT-2 has the tanh form.", {"erf": True}),
    ("the MLP comes before the attention; in GPT-2 the attention comes first.", {"swapped": True}),
    ("ln_1 stands before the MLP, too; ln_2 belongs there.", {"one_norm": True}),
    ("the MLP reads what the attention read; it must read x after the attention was added.", {"parallel": True}),
    ("the heads are not split: all channels attend as one head.", {"whole": True}),
    ("the biases of the linear layers are missing.", {"without": ("bias",)}),
    ("only the first block is run: the model has more of them.", {"blocks": 1}),
]


def logits_of(net, idx):
    with in_plain_words():
        got = net(idx)
    if not (isinstance(got, tuple) and len(got) == 2):
        fail(f"the model gives {'None' if got is None else f'a {type(got).__name__}'}, expected the pair (logits, loss), with loss None if there are no targets.")
    if got[1] is not None:
        fail("there are no targets, and the loss is not None.")
    return got[0]


def set_up(PrecisionGPT, model, policy):
    net = PrecisionGPT(model, policy)
    if not isinstance(net, nn.Module):
        fail("PrecisionGPT should be a torch.nn.Module.", look="the class in parentheses after its name")
    return net


@checks(MODEL, "a policy of float32 changes nothing")
def float32_policy(PrecisionGPT):
    model, idx = Small(), rand_ids(2, 5, n=11, seed=1)
    net = set_up(PrecisionGPT, model, LayerPrecision())
    got = logits_of(net, idx)
    use = LayerPrecision().dtypes(torch)
    known = [(words, lambda change=change: expected_logits(model, use, idx, **change)) for words, change in MISTAKES]
    want = expected_logits(model, use, idx)
    rounded(got, want, 2e-5, known, "an entry of the logits")
    close(got, want, 2e-5, name="an entry of the logits", known=known, look="the forward of the GPT of lesson 06, line by line")
    full = rand_ids(3, 7, n=11, seed=2)
    close(logits_of(net, full), expected_logits(model, use, full), 2e-5, name="the logits of a full window")


@checks(MODEL, "the loss")
def the_loss(PrecisionGPT):
    model, idx, targets = Small(), rand_ids(2, 5, n=11, seed=3), rand_ids(2, 5, n=11, seed=4)
    targets[1, 2] = -100
    got = set_up(PrecisionGPT, model, LayerPrecision())(idx, targets)
    if not (isinstance(got, tuple) and len(got) == 2):
        fail("with targets the model gives the pair (logits, loss).")
    logits, want = model(idx, targets)
    is_tensor(got[1], (), torch.float32, name="the loss")
    summed = want * (targets != -100).sum()
    known = [
        ("the loss is the sum over the targets, expected their mean.", summed),
        ("a target of -100 counts in the mean; it must not.", summed / targets.numel()),
        *loss_mistakes(logits, targets),
    ]
    close(got[0], logits, 2e-5, name="the logits beside the loss")
    close(got[1], want, 1e-5, name="the loss", known=known)


def loss_mistakes(logits, targets):
    """(words, value) of losses over logits (B, T, V) and targets (B, T) that people compute."""
    rows = torch.stack([nn.functional.cross_entropy(x, y) for x, y in zip(logits, targets)])
    return [
        ("logits and targets are shifted against each other: targets[b, t] is the answer to position t already.", nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())),
        ("this is a mean of the means of the sequences: all targets count alike.", rows.mean()),
    ]


@checks(MODEL, "the parameters are the model's own")
def own_parameters(PrecisionGPT):
    model = Small()
    before = {name: (id(p), p.detach().clone()) for name, p in model.named_parameters()}
    net = set_up(PrecisionGPT, model, LayerPrecision.everywhere("float16"))
    net(rand_ids(2, 5, n=11, seed=5))
    for name, p in model.named_parameters():
        if p.dtype != torch.float32:
            fail(f"{name} of the model is {p.dtype} now: the weights stay float32, and are cast at each use.", look=".half() and .to(dtype) of a module change the module itself")
        if name not in before or id(p) != before[name][0] or not torch.equal(p, before[name][1]):
            fail(f"{name} of the model was changed or replaced.", look="what __init__ and forward assign to")
        if not p.requires_grad:
            fail(f"{name} of the model has requires_grad=False now: no optimizer can train it.", look="what __init__ does to the model")
    mine = {id(p): name for name, p in net.named_parameters()}
    for name, (address, _) in before.items():
        if address not in mine:
            fail(
                f"{name} of the model is not a parameter of PrecisionGPT: an optimizer of either would train another tensor.",
                look="copies of the model or of its weights; keep its own modules as attributes of self",
            )
    extra = [name for address, name in mine.items() if address not in {a for a, _ in before.values()}]
    if extra:
        fail(f"PrecisionGPT has a parameter of its own: {extra[0]}. It has none but the model's.")
    if set(net.state_dict()) != set(model.state_dict()):
        odd = sorted(set(net.state_dict()) - set(model.state_dict())) or sorted(set(model.state_dict()) - set(net.state_dict()))
        fail(f"the names in the state dict differ from the model's: {odd[0]}. A checkpoint of one must load into the other.", look="keep wte, wpe, h and ln_f as attributes under these names")
    with torch.no_grad():
        model.ln_f.bias += 1.0
    idx = rand_ids(2, 5, n=11, seed=5)
    got, want = logits_of(net, idx), expected_logits(model, net_dtypes("float16"), idx)
    if isinstance(got, torch.Tensor) and got.shape == want.shape and not equal(got, want, 3e-2):
        fail("the logits do not follow an update of the weights: a cast that is made once misses all updates.", example=difference(got, want, "after 1 is added to ln_f.bias, an entry of the logits"), look="weights that __init__ keeps")
    close(got, want, 3e-2, name="the logits after an update of the weights")


def net_dtypes(name):
    return LayerPrecision.everywhere(name).dtypes(torch)


LARGE = 1e5    # above the largest number of float16, 65504


def probes():
    """part -> [(where, a model in which this place of the part needs more than float16 has)]."""
    found = []

    def add(part, where, change):
        model = Small(n_layer=1)
        with torch.no_grad():
            change(model, model.h[0])
        found.append((part, where, model))

    def scores(model, block):
        C = 12
        block.attn.c_attn.weight[: 2 * C] *= 0.01
        block.attn.c_attn.bias[: 2 * C] = 300.0               # q·k / sqrt(4) = 180000

    def values(model, block):
        block.ln_1.weight.fill_(1e-5)
        block.ln_1.bias.zero_()
        block.attn.c_attn.weight[24:] = LARGE * rand(12, 12, seed=7).sign()

    def projection(model, block):
        block.attn.c_attn.weight[24:] *= 1e-5
        block.attn.c_attn.bias[24:] = 1e-5
        block.attn.c_proj.weight.fill_(LARGE)

    def feed(model, block):
        block.mlp.c_fc.bias.fill_(LARGE)
        block.mlp.c_proj.weight *= 1e-5

    def back(model, block):
        block.mlp.c_fc.weight *= 1e-5
        block.mlp.c_fc.bias.fill_(1e-6)
        block.mlp.c_proj.weight.fill_(LARGE)

    add("embedding", "the positions", lambda model, block: model.wpe.weight.add_(LARGE * torch.arange(12)))
    add("embedding", "what attention adds to x", lambda model, block: block.attn.c_proj.bias.copy_(LARGE * torch.arange(12)))
    add("embedding", "what the MLP adds to x", lambda model, block: block.mlp.c_proj.bias.copy_(LARGE * torch.arange(12)))
    add("qkv", "c_attn", values)
    add("qkv", "c_proj of the attention", projection)
    add("qkv", "the bias of c_proj of the attention", lambda model, block: block.attn.c_proj.bias.copy_(LARGE * torch.arange(12)))
    add("qkv", "the product of q and k", scores)
    add("softmax", "the scores", scores)
    add("norm", "ln_f", lambda model, block: block.mlp.c_proj.bias.copy_(rand(12, seed=9, scale=500.0)))
    add("norm", "ln_2", lambda model, block: block.attn.c_proj.bias.copy_(rand(12, seed=9, scale=500.0)))
    add("norm", "ln_1", lambda model, block: model.wpe.weight.copy_(rand(7, 12, seed=8, scale=500.0)))
    add("mlp", "c_fc", feed)
    add("mlp", "c_proj of the MLP", back)
    add("mlp", "the bias of c_proj of the MLP", lambda model, block: block.mlp.c_proj.bias.copy_(LARGE * torch.arange(12)))
    add("head", "the table of the head", lambda model, block: model.wte.weight[10].fill_(LARGE))
    return found


def policies():
    parts = ("embedding", "qkv", "softmax", "norm", "mlp", "head")
    return [(LayerPrecision(**{part: "float16"}), part) for part in parts]


def far(got, want):
    """Not the same numbers, also not as float16 rounds them."""
    if not torch.equal(got.isfinite(), want.isfinite()):
        return True
    finite = want.isfinite()
    size = want[finite].abs().max().item() if finite.any() else 1.0
    return bool(((got - want)[finite].abs() > 0.05 * max(size, 1.0)).any())


def survives(got, want):
    """Whether numbers stay finite that must not."""
    return bool(got.isfinite().all() and not want.isfinite().all())


def verdict_of_probe(part, where, policy_part, wider=False):
    """mistake, example, look when a probe of `where` in `part` differs under a policy of float16 for policy_part; wider: numbers survive that must not."""
    if part == policy_part or wider:
        return (
            f"{policy_part} is float16 in the policy, and a wider dtype is used at: {where}.",
            f"a number of 100000, or the square of one of 500, must not survive there ({where})",
            f"where self.dtypes.{policy_part.split()[0]} is used, and what meets it: a float16 tensor plus a float32 one is float32",
        )
    return (
        f"{policy_part} is float16 and {part} float32 in the policy, and float16 is used at: {where}.",
        f"a large number survives float32 there ({where}), and the logits are lost",
        "which dtype each line asks the policy for, and which dtype its input still has from the line before",
    )


@checks(MODEL, "each part in its dtype")
def each_part(PrecisionGPT):
    idx = rand_ids(2, 5, n=10, seed=6)
    found = [(*probe, *policy) for probe in probes() for policy in policies()]
    for part, where, model, policy, policy_part in sorted(found, key=lambda f: f[0] != f[4]):   # a part's own probes first
        got = logits_of(set_up(PrecisionGPT, model, policy), idx)
        is_tensor(got, (2, 5, 11), torch.float32, name=f"the logits with {policy_part} in float16")
        want = expected_logits(model, policy.dtypes(torch), idx)
        if far(got, want):
            fail(*verdict_of_probe(part, where, policy_part, survives(got, want)))


@checks(MODEL, "loss and logits are float32")
def float32_loss(PrecisionGPT):
    model, idx, targets = Small(), rand_ids(2, 5, n=11, seed=7), rand_ids(2, 5, n=11, seed=8)
    for name in ("float16", "bfloat16"):
        use = net_dtypes(name)
        net = set_up(PrecisionGPT, model, LayerPrecision.everywhere(name))
        logits, loss = net(idx, targets)
        is_tensor(logits, (2, 5, 11), torch.float32, name=f"the logits with {name} everywhere")
        is_tensor(loss, (), torch.float32, name=f"the loss with {name} everywhere")
        want = nn.functional.cross_entropy(logits.detach().flatten(0, 1).double(), targets.flatten()).float()
        if not equal(loss, want, 1e-5):
            fail("the loss is not the one of these logits in float32: it was computed in fewer digits.", example=difference(loss, want, f"with {name} everywhere the loss of these logits"), look="the logits become float32 before the cross entropy")
        close(logits, expected_logits(model, use, idx), 0.1, name=f"the logits with {name} everywhere")


@checks(MODEL, "gradients reach the float32 weights")
def float32_gradients(PrecisionGPT):
    model, idx, targets = Small(), rand_ids(2, 5, n=11, seed=9), rand_ids(2, 5, n=11, seed=10)
    oracle = copy.deepcopy(model)
    oracle(idx, targets)[1].backward()
    wanted = {name: p.grad for name, p in oracle.named_parameters()}
    for policy, atol in ((LayerPrecision(), 1e-5), (LayerPrecision(qkv="float16", mlp="float16", head="float16"), 2e-2)):
        model.zero_grad()
        loss = set_up(PrecisionGPT, model, policy)(idx, targets)[1]
        if not loss.requires_grad:
            fail("no gradient flows through the loss.", look="torch.no_grad(), .detach(), .item() and torch.tensor(...) cut the graph")
        loss.backward()
        for name, p in model.named_parameters():
            if p.grad is None:
                fail(f"no gradient reaches {name}.", look=".detach(), .data, .item() and torch.tensor(...) cut the graph; a cast by .to(dtype) does not")
            close(p.grad, wanted[name], atol * max(1.0, wanted[name].abs().max().item()), name=f"the gradient of {name}")


@checks(MODEL, "on the device of the ids")
def model_device(PrecisionGPT):
    net = set_up(PrecisionGPT, Small(n_layer=1), LayerPrecision(qkv="float16"))
    keeps_device(lambda net, idx: net(idx)[0], net, rand_ids(2, 5, n=11))


# --- LossScaler ----------------------------------------------------------------------------------------


def problem(make=torch.optim.AdamW, seed=0, **settings):
    """Two parameters in two groups, one without a gradient, and an optimizer over them."""
    params = [nn.Parameter(rand(3, 4, seed=seed)), nn.Parameter(rand(5, seed=seed + 1)), nn.Parameter(rand(2, seed=seed + 2))]
    optimizer = make([{"params": params[:1]}, {"params": params[1:]}], **{"lr": 0.1, **settings})
    return params, optimizer


def give(params, scale, bad=None, seed=0, value=math.inf, at=1):
    for i, p in enumerate(params[:2]):
        p.grad = scale * rand(*p.shape, seed=seed + 10 + i)
    if bad:
        params[at].grad.view(-1)[-1] = value


def step(scaler, optimizer, *args, **kwargs):
    with in_plain_words():
        got = scaler.step(optimizer, *args, **kwargs)
    if got is None:
        fail("step returns None, expected True if the step was made and False if it was skipped.")
    if isinstance(got, (int, float)) and got not in (0, 1):
        fail(f"step returns {got:g}, expected True if the step was made and False if it was skipped.")
    return bool(got)


@checks(SCALER, "the scaled loss")
def scaled_loss(LossScaler):
    w = rand(4, seed=1, grad=True)
    loss = (w * w).sum()
    value = loss.item()
    got = LossScaler(scale=1024.0).scaled(loss)
    is_tensor(got, (), torch.float32, name="scaled(loss)")
    if loss.item() != value:
        fail("scaled changes the loss itself: whoever prints it next prints the scaled one.", look="operations that end in _")
    known = [("the loss is divided by the scale; it is multiplied, so that small gradients grow.", loss / 1024), ("the loss comes back as it was.", loss)]
    close(got, loss * 1024, 1e-6, name="scaled(loss)", known=known)
    if not got.requires_grad:
        fail("no gradient flows through scaled(loss).", look=".item(), .detach() and torch.tensor(...) cut the graph")
    if w.grad is not None:
        fail("scaled calls backward itself: it gives the loss, and whoever called it calls backward.")
    start = LossScaler().scaled(loss.detach()) / loss.detach()
    if not equal(start, torch.tensor(65536.0), 1e-5):
        fail(f"LossScaler() starts with the scale {start.item():g}, expected 65536, which is 2 ** 16.", look="the default of scale")


@checks(SCALER, "a good step")
def good_step(LossScaler):
    for make in (torch.optim.SGD, torch.optim.AdamW):
        settings = {"eps": 1e-2} if make is torch.optim.AdamW else {}
        for scale in (1024.0, 3.0):
            params, optimizer = problem(make, **settings)
            plain, plain_optimizer = problem(make, **settings)
            scaler = LossScaler(scale=scale)
            for i in range(3):
                give(params, scale, seed=i)
                give(plain, 1.0, seed=i)
                before = params[0].detach().clone()
                done = step(scaler, optimizer)
                plain_optimizer.step()
                if float(scaler.scale) > scale:
                    fail(f"the scale goes from {scale:g} to {float(scaler.scale):g} after {i + 1} good steps: it grows after `interval` of them in a row, 2000 by default.", look="the condition under which it grows")
                if torch.equal(params[0], before):
                    fail("the gradients are finite and no step is made.", look="the condition under which a step is skipped, and whether optimizer.step() is called")
                if not equal(params[0], plain[0], 1e-4):
                    fail(
                        "the step is not the one that unscaled gradients give: divide each gradient by the scale, once, before the step.",
                        example=f"scale {scale:g}: {torch.linalg.norm(params[0].detach() - before):.3g} moved, expected {torch.linalg.norm(plain[0].detach() - before):.3g}",
                        look="a division that is missing, comes after the step, is done twice, or multiplies; a clipping that nobody asked for",
                    )
                for i, (a, b) in enumerate(zip(params, plain)):
                    if not equal(a, b, 1e-4):
                        fail(f"parameter {i}, of the second group, makes another step than its unscaled gradient gives; parameter 0 is right.", example=difference(a, b, f"parameter {i}"), look="every group of optimizer.param_groups, every parameter with a gradient")
                if not done:
                    fail("the step was made, and step returns False.")
    params, optimizer = problem(torch.optim.SGD)
    give(params, 1e4, seed=3)
    step(LossScaler(scale=1.0), optimizer)
    plain, plain_optimizer = problem(torch.optim.SGD)
    give(plain, 1e4, seed=3)
    plain_optimizer.step()
    close(params[0], plain[0], 1e-4, name="a parameter after a step with large, finite gradients", look="without max_norm nothing is clipped")


@checks(SCALER, "a step with inf or nan is skipped")
def bad_step(LossScaler):
    for value in (math.inf, -math.inf, math.nan):
        for at, max_norm in ((0, 1.0), (1, 1.0), (1, None)):
            params, optimizer = problem(torch.optim.AdamW)
            scaler = LossScaler(scale=1024.0)
            give(params, 1024.0)
            step(scaler, optimizer)
            weights, state = [p.detach().clone() for p in params], copy.deepcopy(optimizer.state_dict())
            give(params, 1024.0, bad=True, value=value, at=at)
            done = step(scaler, optimizer, max_norm=max_norm)
            where = f"a gradient holds {value} in parameter {at}{'' if max_norm else ', no max_norm is given'}"
            for a, b in zip(params, weights):
                if not equal(a, b, 0):
                    fail(f"{where}, and the parameters change: such a step must be skipped as a whole.", look="what is tested before optimizer.step(): all gradients, for inf and for nan")
            for key, entry in optimizer.state_dict()["state"].items():
                for name, now in entry.items():
                    if not equal(torch.as_tensor(now), torch.as_tensor(state["state"][key][name]), 0):
                        fail(f"{where}, and {name} of the optimizer changes: a skipped step leaves its memory alone too.", look="a step with gradients of 0 is no skipped step: m and v decay, and the count goes on")
            if done:
                fail(f"{where}, and step returns True, which means that a step was made.")
            got = float(scaler.scale)
            if got != 512:
                words = {1024: "the scale stays as it was", 2048: "the scale grows", 1024 * 2**-16: "the scale goes back to 1 / 64"}.get(got, f"the scale becomes {got:g}")
                fail(f"{where}, and {words}: after an overflow it is halved, 1024 to 512.", look="scale times backoff, once for each skipped step")
    scaler, (params, optimizer) = LossScaler(scale=1.0), problem(torch.optim.SGD)
    give(params, 1.0, bad=True)
    step(scaler, optimizer)
    if float(scaler.scale) != 0.5:
        fail(f"after an overflow the scale goes from 1 to {float(scaler.scale):g}, expected 0.5: it may fall below 1.", look="a smallest scale, or whole numbers")


@checks(SCALER, "the scale grows after enough good steps")
def growth_of_scale(LossScaler):
    params, optimizer = problem(torch.optim.SGD, lr=1e-6)
    scaler = LossScaler(scale=8.0, growth=4.0, backoff=0.25, interval=3)
    seen = []
    for i, bad in enumerate([0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]):
        give(params, 1.0, bad=bad, seed=i)
        step(scaler, optimizer)
        seen.append(float(scaler.scale))
    want = [8, 8, 32, 32, 32, 8, 8, 8, 32, 8, 2, 2, 2, 8, 8, 8, 32]
    if seen == want:
        return
    at = next(i for i, (a, b) in enumerate(zip(seen, want)) if a != b)
    rows = {
        "the scale never grows.": max(seen[:5]) == 8,
        "growth and backoff are not the ones given to LossScaler(...): 4 and 0.25 here.": seen[at] in (16, 4, 64) and at in (2, 5),
        "the scale grows one step late: after interval good steps, not interval + 1.": at == 2 and seen[3] == 32,
        "the scale grows too early: it takes interval good steps.": at < 2 and seen[at] > 8,
        "the count of good steps does not start again after the scale has grown.": at in (3, 4, 5) and seen[at] > want[at],
        "the count of good steps does not start again after an overflow: they must be in a row.": at in (6, 7) and seen[at] > want[at],
        "after an overflow the count of good steps is not 0.": at == 8 and seen[at] < want[at],
    }
    words = next((words for words, fits in rows.items() if fits), "the scale does not go as it should.")
    fail(
        words,
        example=f"scale 8, growth 4, backoff 0.25, interval 3; good and bad steps: 5 good, bad, 3 good, ...: the scales are {[f'{s:g}' for s in seen[: at + 1]]}, expected {[str(s) for s in want[: at + 1]]}",
        look="when good_steps counts, and where it returns to 0",
    )


@checks(SCALER, "growth by default")
def growth_by_default(LossScaler):
    w = nn.Parameter(torch.zeros(1))
    scaler, optimizer = LossScaler(scale=1.0), torch.optim.SGD([w], lr=0.0)
    for i in range(2001):
        w.grad = torch.ones(1)
        step(scaler, optimizer)
        if i in (1998, 1999) and float(scaler.scale) != (1, 2)[i - 1998]:
            fail(
                f"the scale is {float(scaler.scale):g} after {i + 1} good steps, expected {(1, 2)[i - 1998]}: by default it doubles after 2000 good steps.",
                look="the defaults of growth and interval",
            )


def clipping_mistake(moved, norm, want):
    """Words for a step of length moved, where the gradients' norm is norm and want was expected."""
    if abs(moved - norm) <= 1e-3 * norm:
        return "max_norm is given and nothing is clipped."
    if moved > want and want < norm:
        return "the gradients are clipped too little: one norm over all of them counts, not that of each, and not their largest entry."
    if moved > want:
        return "gradients whose norm is below max_norm are made longer: they stay as they are."
    return "the gradients are clipped too much: the norm that counts is the one without the scale."


@checks(SCALER, "clipping by the true norm")
def clipping(LossScaler):
    for max_norm, size in ((1.0, 3.0), (0.5, 0.01)):
        params, optimizer = problem(torch.optim.SGD, lr=1.0)
        plain, plain_optimizer = problem(torch.optim.SGD, lr=1.0)
        give(params, 1024.0 * size)
        give(plain, size)
        norm = torch.nn.utils.clip_grad_norm_(plain[:2], max_norm).item()
        plain_optimizer.step()
        start = problem(torch.optim.SGD)[0]
        step(LossScaler(scale=1024.0), optimizer, max_norm=max_norm)
        moved = torch.cat([(a - b).detach().flatten() for a, b in zip(params, start)]).norm().item()
        want = min(norm, max_norm)
        if abs(moved - want) > 1e-3 * want:
            fail(clipping_mistake(moved, norm, want), example=f"norm {norm:.3g}, max_norm {max_norm}, scale 1024: a step of length {moved:.3g}, expected {want:.3g}", look="clip after the division, before the step, over all parameters at once")
    params, optimizer = problem(torch.optim.SGD, lr=1.0)
    give(params, 1024.0)
    scaler = LossScaler(scale=1024.0)
    if not step(scaler, optimizer, 1.0):
        fail("the gradients are finite, and step says that it was skipped when max_norm is given.")


@checks(SCALER, "as torch.amp.GradScaler, for each by itself")
def as_gradscaler(LossScaler):
    params, optimizer = problem(torch.optim.AdamW, lr=0.01)
    plain, plain_optimizer = problem(torch.optim.AdamW, lr=0.01)
    mine = LossScaler(scale=64.0, growth=2.0, backoff=0.5, interval=4)
    other = LossScaler(scale=2.0)                             # a second one, that must not interfere
    theirs = torch.amp.GradScaler("cpu", init_scale=64.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=4)
    if float(mine.scale) != 64:
        fail("two scalers share their scale.", look="values of the class instead of values of self")
    bad = rand_ids(40, n=6, seed=3) == 0
    for i in range(40):
        for who, scale in ((params, float(mine.scale)), (plain, theirs.get_scale())):
            give(who, scale, bad=bool(bad[i]), seed=i)
        theirs.scale(torch.ones(()))
        theirs.step(plain_optimizer)
        theirs.update()
        scale = float(mine.scale)
        step(mine, optimizer)
        if not equal(params[0], plain[0], 1e-4) and float(mine.scale) > scale:
            fail(
                "at the step at which the scale grows the gradients are divided by the new scale: they were made with the old one.",
                example=f"step {i + 1}, where the scale goes from {scale:g} to {float(mine.scale):g}", look="the order: divide, test, step, and count last",
            )
        if float(mine.scale) != theirs.get_scale():
            fail(f"after {i + 1} steps, {int(bad[: i + 1].sum())} of them with inf, the scale is {float(mine.scale):g} and that of torch.amp.GradScaler {theirs.get_scale():g}.")
    if float(other.scale) != 2:
        fail("a scaler that was not used changes with another one.", look="values of the class instead of values of self")
    for a, b in zip(params, plain):
        close(a, b, 1e-5, name="a parameter after 40 steps")
