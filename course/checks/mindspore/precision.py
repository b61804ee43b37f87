"""Checks of lesson 18: precision, in MindSpore. The oracles are those of the PyTorch half, and a scaler of ten lines."""
import contextlib
import math
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import torch
from mindspore import nn, ops

from course.checks import checks
from course.checks.mindspore import (
    call, close, difference, equal, fail, first_words, gradients_close, in_a_folder_of_its_own, in_plain_words, is_tensor, rand, rand_ids, same_in_graph_mode, source_line,
    GRAPH_RULES,
)
from course.checks.pytorch import attention as of_attention
from course.checks.pytorch import precision as in_pytorch
from course.precision import LayerPrecision

ATTENTION = "mindspore.precision.attention_in"
MODEL = "mindspore.precision.PrecisionGPT"
SCALER = "mindspore.precision.LossScaler"

HALF = np.float16
MEETING = [
    ("the type of 'x2' should be same as 'x1'", "two dtypes meet in a product: PyTorch and MindSpore both refuse that, and a sum of the two becomes float32 silently."),
    ("For Tensor.astype, the input type must be", "astype wants a dtype of MindSpore, ms.float16 or what policy.dtypes(ms) holds."),
    ("LogicalNot()(input=None)", "the mask is None where all may attend: there is nothing to fill then."),
]


def of_torch(*arrays):
    return [torch.from_numpy(np.asarray(a)) for a in arrays]


def to_ms(dtype):
    return getattr(ms, np.dtype(dtype).name)


def attend(attention_in, q, k, v, mask, dtype):
    with in_plain_words(MEETING):
        return call(attention_in, q, k, v, mask, to_ms(dtype))


# --- attention_in --------------------------------------------------------------------------------------


@checks(ATTENTION, "the dtype of the result")
def attention_dtype(attention_in):
    for given in (np.float32, HALF):
        for dtype in (np.float32, HALF):
            q, k, v = (rand(2, 5, 4, seed=i).astype(given) for i in range(3))
            got = attend(attention_in, q, k, v, None, dtype)
            if isinstance(got, ms.Tensor) and got.dtype != to_ms(given) and got.dtype == to_ms(dtype):
                fail(
                    f"q, k and v are {to_ms(given)} and the result is {got.dtype}: only the softmax runs in another dtype.",
                    look="the weights, on their way from the softmax to the product with v",
                )
            is_tensor(got, (2, 5, 4), to_ms(given))


@checks(ATTENTION, "values in float32")
def attention_values(attention_in):
    q, k, v = rand(2, 3, 6, 8, seed=1), rand(2, 3, 7, 8, seed=2), rand(2, 3, 7, 5, seed=3)
    for mask in (of_attention.expected_mask(6, 7).numpy(), None, rand(2, 1, 6, 7, seed=4) > -0.5):
        if mask is not None:
            mask = mask | (np.arange(7) == 2)                     # nobody is left without a key
        got = attend(attention_in, q, k, v, mask, np.float32)
        given = of_torch(q, k, v) + [None if mask is None else torch.from_numpy(mask)]
        known = [(words, value.numpy()) for words, value in of_attention.attention_mistakes(*given)]
        rounded(got, of_attention.sdpa(*given).numpy(), 1e-5, known)
        close(got, of_attention.sdpa(*given).numpy(), 1e-5, known=known, look="lesson 12: nothing but dtypes changes")


def rounded(got, want, atol, known=(), of="the result"):
    """Fails if got is want but for digits, and none of the known mistakes: something ran in float16 where all is float32."""
    if equal(got, want, atol) or not equal(got, want, 0.03) or got.dtype != ms.float32:
        return
    if not any(equal(got, value() if callable(value) else value, 1e-5) for _, value in known):
        fail(
            f"all dtypes asked for are float32, and {of} has the digits of float16: a step ran in another dtype.",
            example=difference(got, want, of), look="dtypes that are written out: astype(ms.float16)",
        )


@checks(ATTENTION, "the softmax runs in dtype")
def softmax_dtype(attention_in):
    q, k = rand(40, 16, seed=5), rand(64, 16, seed=6)
    unit = np.eye(64, dtype=np.float32)
    weights = attend(attention_in, q, k, unit, None, HALF).asnumpy()    # float32 around a softmax in float16
    if not np.array_equal(weights, weights.astype(HALF).astype(np.float32)):
        fail(
            "dtype is float16, and the weights have more digits than float16 holds: the softmax did not run in it.",
            look="where the scores are turned into dtype: after the product, before the softmax",
        )
    exact = in_pytorch.in_steps(*of_torch(q, k, unit), None, torch.float32).half().float().numpy()
    if (weights == exact).mean() > 0.97:
        fail("dtype is float16, and only the weights are: the softmax itself ran in float32.", look="the scores are turned into dtype before the softmax, not the weights after it")
    q, k = (np.round(2 * rand(*s, seed=i)).astype(HALF) for i, s in ((7, (40, 16)), (8, (64, 16))))   # scores without rounding
    weights = attend(attention_in, q, k, unit.astype(HALF), None, np.float32).asnumpy().astype(np.float64)
    want = ((torch.from_numpy(q).double() / 4) @ torch.from_numpy(k).double().T).softmax(-1).numpy()
    off = np.abs(weights - want) > want * 2**-11 * 1.05 + 2**-25
    if off.mean() > 0.04:                                         # exp on MindSpore's CPU is off by 6e-6 itself
        fail(
            "dtype is float32, and the weights are off by more than their own rounding to float16: the softmax did not run in float32.",
            example=f"{int(off.sum())} of {off.size} weights are not the nearest number of float16", look="where the scores are turned into dtype",
        )


@checks(ATTENTION, "the products run in the dtype of q and v")
def product_dtype(attention_in):
    q, k = np.zeros((1, 16), HALF), np.zeros((2, 16), HALF)
    q[0, :2] = 8, 4                                               # divided by sqrt(16): 2 and 1
    k[:, 0], k[0, 1] = 1024, 1                                    # scores 2049 and 2048; float16 has no 2049
    got = attend(attention_in, q, k, np.array([[1], [0]], HALF), None, np.float32)
    if abs(float(got.asnumpy()[0, 0]) - 0.5) > 0.1:
        fail(
            "q and k are float16, and the scores are more exact than a product in float16: it ran in a wider dtype.",
            example=f"scores 2049 and 2048 are one number in float16; the weight of the first is {float(got.asnumpy()[0, 0]):.2f}, expected 0.50",
            look="which dtype q and k have at the product: the policy for the products is theirs",
        )
    got = attend(attention_in, np.zeros((1, 16), HALF), np.zeros((3, 16), HALF), np.array([[2560], [0], [0]], HALF), None, np.float32)
    if abs(float(got.asnumpy()[0, 0]) - 853) > 0.3:
        fail(
            "v is float16, and the product with it ran in a wider dtype.",
            example=f"three equal weights and values 2560, 0, 0 in float16: {float(got.asnumpy()[0, 0]):g}, expected 853",
            look="the weights get the dtype of v before the product",
        )


@checks(ATTENTION, "large scores")
def large_scores(attention_in):
    q, k = np.full((1, 64), 40, HALF), np.full((2, 64), 40, HALF)  # 102400 before the division, 12800 after
    k[1] = 39
    if not np.isfinite(attend(attention_in, q.astype(np.float32), k.astype(np.float32), np.eye(2, dtype=np.float32), None, np.float32).asnumpy()).all():
        fail(
            "a softmax of large scores gives nan: exp overflows. It must subtract the largest score of a row first.",
            example="scores 12800 and 12480 in float32", look="softmax of lesson 10 does it",
        )
    got = attend(attention_in, q, k, np.array([[1], [0]], HALF), None, np.float32)
    if not equal(got, np.ones((1, 1)), 1e-3):
        fail(
            "the product of q and k overflows float16 although the scores fit: it is divided by sqrt(d) too late.",
            example=f"d = 64, q of 40s, k of 40s: 102400 is beyond 65504, 12800 is not; the result is {float(got.asnumpy()[0, 0]):g}, expected 1",
            look="divide q, before the product",
        )


@checks(ATTENTION, "hidden keys")
def hidden_keys(attention_in):
    for given, dtype in ((np.float32, np.float32), (HALF, HALF), (HALF, np.float32)):
        size = 100 if given == dtype == np.float32 else 1
        q, k = np.full((1, 4), 100, given), np.full((2, 4), 150 * size, given)
        k[0] = -150 * size                                        # scores -30000 and 30000, or more
        got = attend(attention_in, q, k, np.array([[1], [2]], given), np.array([[True, False]]), dtype)
        if float(got.asnumpy()[0, 0]) != 1:
            fail(
                "a hidden key is seen: it gets a large negative number and not -inf, and a score may be lower still.",
                example=f"scores {-30000 * size} and (hidden) {30000 * size} in {np.dtype(dtype).name}: the result is {float(got.asnumpy()[0, 0]):g}, the value of the visible key is 1",
                look="what masked_fill writes",
            )


@checks(ATTENTION, "gradients")
def attention_gradients(attention_in):
    q, k, v = rand(2, 5, 8, seed=11), rand(2, 5, 8, seed=12), rand(2, 5, 3, seed=13)
    mask, weighting = of_attention.expected_mask(5, 5), rand(2, 5, 3, seed=99)
    leaves = [x.double().requires_grad_() for x in of_torch(q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=mask)
    wanted = torch.autograd.grad((out * torch.from_numpy(weighting)).sum(), leaves)
    given, hidden = ms.Tensor(weighting), ms.Tensor(mask.numpy())

    def weighted(q, k, v):
        return (attention_in(q, k, v, hidden, ms.float32) * given).sum()

    mine = ms.grad(weighted, (0, 1, 2))(*map(ms.Tensor, (q, k, v)))
    gradients_close([g.asnumpy() for g in mine], [g.float().numpy() for g in wanted], "qkv", 2e-5)


@checks(ATTENTION, "the same in graph mode", seconds=20)
def attention_graph(attention_in):
    mask = ms.Tensor(of_attention.expected_mask(5, 5).numpy())

    def in_float32(q, k, v):
        return attention_in(q, k, v, mask, ms.float32)

    same_in_graph_mode(in_float32, *(rand(2, 5, 8, seed=i).astype(HALF) for i in (14, 15, 16)), atol=2e-3)


# --- PrecisionGPT --------------------------------------------------------------------------------------


class Norm(nn.Cell):
    """Statistics in the dtype of x, as the LayerNorm of lesson 14 has them."""

    def __init__(self, C):
        super().__init__()
        self.weight, self.bias = ms.Parameter(np.ones(C, np.float32)), ms.Parameter(np.zeros(C, np.float32))

    def construct(self, x):
        x = x - x.mean(axis=-1, keep_dims=True)
        return self.weight * (x * ops.rsqrt((x * x).mean(axis=-1, keep_dims=True) + 1e-5)) + self.bias


class Rows(nn.Cell):
    def __init__(self, n, C):
        super().__init__()
        self.weight = ms.Parameter(np.zeros((n, C), np.float32))

    def construct(self, idx):
        return ops.gather(self.weight, idx, 0)


class Layer(nn.Cell):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight, self.bias = ms.Parameter(np.zeros((d_out, d_in), np.float32)), ms.Parameter(np.zeros(d_out, np.float32))


class Attention(nn.Cell):
    def __init__(self, C, n_head):
        super().__init__()
        self.n_head, self.c_attn, self.c_proj = n_head, Layer(C, 3 * C), Layer(C, C)


class Feed(nn.Cell):
    def __init__(self, C):
        super().__init__()
        self.c_fc, self.c_proj = Layer(C, 4 * C), Layer(4 * C, C)


class OneBlock(nn.Cell):
    def __init__(self, C, n_head):
        super().__init__()
        self.ln_1, self.attn, self.ln_2, self.mlp = Norm(C), Attention(C, n_head), Norm(C), Feed(C)


class Small(nn.Cell):
    """A GPT of lesson 15 as far as PrecisionGPT reads it, with the weights of a Small of the PyTorch checks."""

    def __init__(self, twin):
        super().__init__()
        c = self.config = SimpleNamespace(**vars(twin.config))
        self.wte, self.wpe, self.ln_f = Rows(c.vocab_size, c.n_embd), Rows(c.n_ctx, c.n_embd), Norm(c.n_embd)
        self.h = nn.CellList([OneBlock(c.n_embd, c.n_head) for _ in range(c.n_layer)])
        weights = {name: p.detach().numpy() for name, p in twin.named_parameters()}
        for name, p in self.parameters_and_names():
            p.set_data(ms.Tensor(weights[name].copy()))


def logits_of(net, idx):
    with in_plain_words(MEETING):
        got = net(ms.Tensor(idx))
        if not (isinstance(got, tuple) and len(got) == 2):
            fail(f"the model gives {'None' if got is None else f'a {type(got).__name__}'}, expected the pair (logits, loss), with loss None if there are no targets.")
        if got[1] is not None:
            fail("there are no targets, and the loss is not None.")
        if isinstance(got[0], ms.Tensor):
            got[0].asnumpy()                                      # errors come up here
    return got[0]


def set_up(PrecisionGPT, model, policy):
    with in_plain_words():
        net = PrecisionGPT(model, policy)
    if not isinstance(net, nn.Cell):
        fail("PrecisionGPT should be a mindspore.nn.Cell.", look="the class in parentheses after its name")
    if callable(getattr(net, "forward", None)) and type(net).construct is nn.Cell.construct:
        fail("the method is called forward, as in PyTorch; a MindSpore cell runs construct.", look="the name of the method")
    return net


def expected_logits(twin, policy, idx, **change):
    with torch.no_grad():
        return in_pytorch.expected_logits(twin, policy.dtypes(torch), torch.from_numpy(idx).long(), **change).numpy()


@checks(MODEL, "a policy of float32 changes nothing")
def float32_policy(PrecisionGPT):
    twin, idx, plain = in_pytorch.Small(), rand_ids(2, 5, n=11, seed=1), LayerPrecision()
    net = set_up(PrecisionGPT, Small(twin), plain)
    known = [(words, lambda change=change: expected_logits(twin, plain, idx, **change)) for words, change in in_pytorch.MISTAKES]
    got, want = logits_of(net, idx), expected_logits(twin, plain, idx)
    rounded(got, want, 3e-5, known, "an entry of the logits")
    close(got, want, 3e-5, name="an entry of the logits", known=known, look="the construct of the GPT of lesson 15, line by line")


@checks(MODEL, "the loss")
def the_loss(PrecisionGPT):
    twin, idx, targets = in_pytorch.Small(), rand_ids(2, 5, n=11, seed=3), rand_ids(2, 5, n=11, seed=4)
    targets[1, 2] = -100
    for policy, atol in ((LayerPrecision(), 3e-5), (LayerPrecision.everywhere("float16"), 5e-2)):
        got = set_up(PrecisionGPT, Small(twin), policy)(ms.Tensor(idx), ms.Tensor(targets))
        if not (isinstance(got, tuple) and len(got) == 2):
            fail("with targets the model gives the pair (logits, loss).")
        logits, loss = got
        is_tensor(logits, (2, 5, 11), ms.float32, name="the logits beside the loss")
        is_tensor(loss, (), ms.float32, name="the loss")
        rows, right = torch.from_numpy(logits.asnumpy()).flatten(0, 1), torch.from_numpy(targets).long().flatten()
        want = torch.nn.functional.cross_entropy(rows, right).numpy()
        summed, every = want * 9, torch.from_numpy(np.where(targets < 0, 0, targets)).long().flatten()
        known = [
            ("the loss is the sum over the targets, expected their mean.", summed),
            ("a target of -100 counts in the mean; it must not.", summed / 10),
            ("a target of -100 is taken for token 0; it must not count.", torch.nn.functional.cross_entropy(rows, every).numpy()),
            *((words, value.numpy()) for words, value in in_pytorch.loss_mistakes(torch.from_numpy(logits.asnumpy()), torch.from_numpy(targets).long())),
        ]
        close(loss, want, 2e-5, name="the loss of these logits", known=known, look="the logits become float32 before the cross entropy")
        close(logits, expected_logits(twin, policy, idx), atol, name="the logits beside the loss")


@checks(MODEL, "the parameters are the model's own")
def own_parameters(PrecisionGPT):
    twin = in_pytorch.Small()
    model = Small(twin)
    before = {name: (id(p), p.asnumpy().copy()) for name, p in model.parameters_and_names()}
    policy, idx = LayerPrecision.everywhere("float16"), rand_ids(2, 5, n=11, seed=5)
    net = set_up(PrecisionGPT, model, policy)
    logits_of(net, idx)
    for name, p in model.parameters_and_names():
        if p.dtype != ms.float32:
            fail(f"{name} of the model is {p.dtype} now: the weights stay float32, and are cast at each use.", look="to_float and set_dtype change the cell itself; astype gives a new tensor")
        if id(p) != before[name][0] or not np.array_equal(p.asnumpy(), before[name][1]):
            fail(f"{name} of the model was changed or replaced.", look="what __init__ and construct assign to")
        if p.name != name:
            fail(f"{name} of the model is named {p.name} now: checkpoints and the optimizer go by these names.", look="keep wte, wpe, h and ln_f as attributes under these names, not the model as a whole")
    mine = dict(net.parameters_and_names())
    for name in before:
        if name not in mine or id(mine[name]) != before[name][0]:
            fail(f"{name} of the model is not a parameter of PrecisionGPT under this name: it trains another tensor, or none.", look="keep the model's own wte, wpe, h and ln_f as attributes of self")
    for name in mine:
        if name not in before:
            fail(f"PrecisionGPT has a parameter of its own: {name}. It has none but the model's.")
    model.ln_f.bias.set_data(model.ln_f.bias + 1)
    with torch.no_grad():
        twin.ln_f.bias += 1
    got, want = logits_of(net, idx), expected_logits(twin, policy, idx)
    if isinstance(got, ms.Tensor) and tuple(got.shape) == want.shape and not equal(got, want, 5e-2):
        fail("the logits do not follow an update of the weights: a cast that is made once misses all updates.", example=difference(got, want, "after 1 is added to ln_f.bias, an entry of the logits"), look="weights that __init__ keeps")
    close(got, want, 5e-2, name="the logits after an update of the weights")


PROBES = []   # made once
CROSSED = ("the positions", "c_attn", "c_proj of the attention", "the scores", "ln_1", "c_fc", "c_proj of the MLP", "the table of the head")


@checks(MODEL, "each part in its dtype", seconds=20)
def each_part(PrecisionGPT):
    idx = rand_ids(2, 5, n=10, seed=6)
    refuses_bfloat16(PrecisionGPT)
    PROBES[:] = PROBES or in_pytorch.probes()
    for part, where, twin in PROBES:
        probe(PrecisionGPT, part, where, twin, idx, [part])
    for part, where, twin in PROBES:
        if where in CROSSED:                                      # with every other part in float16 that can bear it
            plain = torch.from_numpy(expected_logits(twin, LayerPrecision(), idx))
            others = [name for policy, name in in_pytorch.policies() if not in_pytorch.far(torch.from_numpy(expected_logits(twin, policy, idx)), plain)]
            probe(PrecisionGPT, part, where, twin, idx, others)


def refuses_bfloat16(PrecisionGPT):
    """On a CPU, where MindSpore has no products in it."""
    if ms.get_context("device_target") != "CPU":
        return
    try:
        PrecisionGPT(Small(in_pytorch.Small(n_layer=1)), LayerPrecision(mlp="bfloat16"))
    except ValueError:
        return
    fail("a policy with bfloat16 is taken without a word, and MindSpore has no products in it on a CPU: expected ValueError.", look="policy.dtypes(ms) raises it, and turns the names into dtypes")


def probe(PrecisionGPT, part, where, twin, idx, halves):
    policy = LayerPrecision(**dict.fromkeys(halves, "float16"))
    got = logits_of(set_up(PrecisionGPT, Small(twin), policy), idx)
    is_tensor(got, (2, 5, 11), ms.float32, name=f"the logits with {' and '.join(halves)} in float16")
    got, want = torch.from_numpy(got.asnumpy()), torch.from_numpy(expected_logits(twin, policy, idx))
    if in_pytorch.far(got, want):
        fail(*in_pytorch.verdict_of_probe(part, where, part if halves == [part] else " and ".join(halves), in_pytorch.survives(got, want)))


@checks(MODEL, "gradients reach the float32 weights", seconds=20)
def float32_gradients(PrecisionGPT):
    twin, idx, targets = in_pytorch.Small(n_layer=1), rand_ids(2, 5, n=11, seed=9), rand_ids(2, 5, n=11, seed=10)
    twin(torch.from_numpy(idx).long(), torch.from_numpy(targets).long())[1].backward()
    wanted = {name: p.grad.numpy() for name, p in twin.named_parameters()}
    model = Small(twin)
    params = list(model.trainable_params())
    net = set_up(PrecisionGPT, model, LayerPrecision(qkv="float16", mlp="float16", head="float16"))

    def loss_of(x, y):
        return net(x, y)[1]

    loss, grads = ms.value_and_grad(loss_of, None, params)(ms.Tensor(idx), ms.Tensor(targets))
    for p, g in zip(params, grads):
        want = wanted[p.name]
        if not np.abs(g.asnumpy()).max() > 0:
            fail(f"no gradient reaches {p.name}.", look="ops.stop_gradient, .asnumpy() and ms.Tensor(...) cut the graph; astype does not")
        close(g, want, 3e-2 * max(1.0, np.abs(want).max()), name=f"the gradient of {p.name}")


@checks(MODEL, "the same in graph mode", seconds=30)
def model_graph(PrecisionGPT):
    model = Small(in_pytorch.Small(n_layer=1))
    net = set_up(PrecisionGPT, model, LayerPrecision(qkv="float16", mlp="float16", head="float16"))
    idx, targets = (ms.Tensor(rand_ids(2, 5, n=11, seed=i)) for i in (11, 12))

    def loss_of(x, y):
        return net(x, y)[1]

    with compiles():
        graph = ms.jit(loss_of)(idx, targets)
        graph.asnumpy()
    close(graph, loss_of(idx, targets).asnumpy(), 2e-3, name="the loss in graph mode")


@contextlib.contextmanager
def compiles():
    """What the graph compiler refuses inside, in plain words."""
    try:
        with in_a_folder_of_its_own():
            yield
    except Exception as error:
        text = str(error)
        if "parameters number of the function" in text or "For Tensor.astype, the input type must be" in text:
            words = "a function got other arguments than it has. In a graph the name of a method hides a function of the same name: call no method linear."
        elif "is not defined" in text:
            words = "a name is not known inside the graph. all(... for ... in ...) is run by Python there, which sees none of your names: make a list, and one tensor of it."
        else:
            words = next((words for mark, words in GRAPH_RULES if mark in text), "the graph compiler does not accept it.")
        fail(f"it works eagerly and not in graph mode: {words}", example=first_words(text), look=source_line(text))


# --- LossScaler ----------------------------------------------------------------------------------------


class Momentum(nn.Cell):
    """An optimizer with a memory, with the step(grads) of lesson 16."""

    def __init__(self, params, lr=0.1):
        super().__init__()
        self.params, self.lr = ms.ParameterTuple(params), lr
        self.t = ms.Parameter(ms.Tensor(0.0, ms.float32), name="t", requires_grad=False)
        self.m = self.params.clone("m", init="zeros")

    def step(self, grads):
        t = ops.assign(self.t, self.t + 1)
        for i in range(len(self.params)):
            m = ops.assign(self.m[i], 0.9 * self.m[i] + grads[i])
            ops.assign(self.params[i], self.params[i] - self.lr * m)
        return t

    def numbers(self):
        return [p.asnumpy().copy() for p in (*self.params, *self.m, self.t)]


SHAPES = [(3, 4), (5,)]


def optimizer_over(lr=0.1):
    return Momentum([ms.Parameter(ms.Tensor(rand(*s, seed=i)), name=f"w{i}") for i, s in enumerate(SHAPES)], lr)


def gradients(scale, seed=0, bad=None, at=1):
    grads = [scale * rand(*s, seed=seed + 10 + i) for i, s in enumerate(SHAPES)]
    if bad is not None:
        grads[at].reshape(-1)[-1] = bad
    return grads


def expected_step(numbers, grads, lr=0.1, max_norm=None):
    """[w0, w1, m0, m1, t] after a step of Momentum, in float64."""
    w, m, t = numbers[:2], numbers[2:4], numbers[4]
    grads = [np.asarray(g, np.float64) for g in grads]
    norm = math.sqrt(sum((g * g).sum() for g in grads))
    if max_norm is not None and norm > max_norm:
        grads = [g * max_norm / norm for g in grads]
    m = [0.9 * a + g for a, g in zip(m, grads)]
    return [*(a - lr * b for a, b in zip(w, m)), *m, t + 1]


def number(x):
    return float(x.asnumpy()) if isinstance(x, ms.Tensor) else float(x)


PAIR = [("All input shape size must be the same", "optimizer.step gets something else than one gradient for each parameter: clip_grad_norm gives a pair, the new gradients and the norm.")]


def step(scaler, optimizer, grads, *args):
    with in_plain_words(PAIR):
        got = scaler.step(optimizer, tuple(map(ms.Tensor, grads)), *args)
    if got is None:
        fail("step returns None, expected True if the step was made and False if it was skipped.")
    return bool(number(got))


@checks(SCALER, "a Cell with Parameters")
def scaler_cell(LossScaler):
    with in_plain_words():
        scaler = LossScaler(scale=1024.0)
    if not isinstance(scaler, nn.Cell):
        fail("LossScaler should be a mindspore.nn.Cell.", look="the class in parentheses after its name")
    for name in ("scale", "good_steps"):
        p = getattr(scaler, name, None)
        if not isinstance(p, ms.Parameter):
            fail(f"{name} is {'missing' if p is None else f'of type {type(p).__name__}'}: a compiled step can change nothing but Parameters.", look="ms.Parameter(ms.Tensor(...), name=..., requires_grad=False)")
        if p.requires_grad:
            fail(f"{name} has requires_grad=True: an optimizer over trainable_params() would train it.")
    loss = ms.Tensor(3.0, ms.float32)
    got = scaler.scaled(loss)
    is_tensor(got, (), ms.float32, name="scaled(loss)")
    close(got, np.float32(3072), 1e-6, name="scaled(loss) for the loss 3 and the scale 1024", known=[("the loss is divided by the scale; it is multiplied, so that small gradients grow.", np.float32(3 / 1024))])
    start = number(LossScaler().scale)
    if start != 65536:
        fail(f"LossScaler() starts with the scale {start:g}, expected 65536, which is 2 ** 16.", look="the default of scale")


@checks(SCALER, "a good step")
def good_step(LossScaler):
    optimizer, scaler = optimizer_over(), LossScaler(scale=1024.0)
    for i in range(2):
        before = optimizer.numbers()
        done = step(scaler, optimizer, gradients(1024.0, seed=i))
        want = expected_step(before, gradients(1.0, seed=i))
        got = optimizer.numbers()
        if number(scaler.scale) > 1024:
            fail(f"the scale goes from 1024 to {number(scaler.scale):g} after {i + 1} good steps: it grows after `interval` of them in a row, 2000 by default.", look="the condition under which it grows")
        if all(np.array_equal(a, b) for a, b in zip(got, before)):
            fail("the gradients are finite and no step is made.", look="the condition under which a step is skipped, and whether optimizer.step(grads) is called")
        if np.abs(got[0] - want[0]).max() > 1e-4:
            fail(
                "the step is not the one that unscaled gradients give: divide each gradient by the scale, once, before the step.",
                example=f"scale 1024: {np.linalg.norm(got[0] - before[0]):.3g} moved, expected {np.linalg.norm(want[0] - before[0]):.3g}",
                look="a division that is missing, is done twice, or multiplies",
            )
        for a, b in zip(got, want):
            close(ms.Tensor(a), np.asarray(b, np.float32), 1e-4, name="a number of the optimizer after the step")
        if not done:
            fail("the step was made, and step returns False.")


@checks(SCALER, "a step with inf or nan is skipped")
def bad_step(LossScaler):
    for value in (math.inf, -math.inf, math.nan):
        for at, max_norm in ((0, 1.0), (1, None)):
            optimizer, scaler = optimizer_over(), LossScaler(scale=1024.0)
            step(scaler, optimizer, gradients(1024.0))
            before = optimizer.numbers()
            done = step(scaler, optimizer, gradients(1024.0, bad=value, at=at), max_norm)
            after = optimizer.numbers()
            where = f"a gradient holds {value} in parameter {at}{'' if max_norm else ', no max_norm is given'}"
            for a, b in zip(after[:2], before[:2]):
                if not np.array_equal(a, b):
                    fail(f"{where}, and the parameters change: such a step must be skipped as a whole.", look="what is tested before optimizer.step(grads): all gradients, for inf and for nan")
            for name, a, b in zip(("m", "m", "t"), after[2:], before[2:]):
                if not np.array_equal(a, b):
                    fail(f"{where}, and {name} of the optimizer changes: a skipped step leaves its memory alone too.", look="a step with gradients of 0 is no skipped step: m and v decay, and the count goes on")
            if done:
                fail(f"{where}, and step returns True, which means that a step was made.")
            got = number(scaler.scale)
            if got != 512:
                words = {1024: "the scale stays as it was", 2048: "the scale grows"}.get(got, f"the scale becomes {got:g}")
                fail(f"{where}, and {words}: after an overflow it is halved, 1024 to 512.", look="scale times backoff, once for each skipped step; ops.assign writes a Parameter")
    scaler = LossScaler(scale=1.0)
    step(scaler, optimizer_over(), gradients(1.0, bad=math.inf))
    if number(scaler.scale) != 0.5:
        fail(f"after an overflow the scale goes from 1 to {number(scaler.scale):g}, expected 0.5: it may fall below 1.", look="a smallest scale, or whole numbers")


SEQUENCE = [0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0]
SCALES = [8, 8, 32, 32, 32, 8, 8, 8, 32, 8, 2, 2, 2, 8, 8, 8, 32]


@checks(SCALER, "the scale grows after enough good steps")
def growth_of_scale(LossScaler):
    optimizer = optimizer_over(1e-6)
    scaler, other = LossScaler(scale=8.0, growth=4.0, backoff=0.25, interval=3), LossScaler(scale=2.0)
    seen = []
    for bad in SEQUENCE:
        step(scaler, optimizer, gradients(1.0, bad=math.inf if bad else None))
        seen.append(number(scaler.scale))
    if seen != SCALES:
        at = next(i for i, (a, b) in enumerate(zip(seen, SCALES)) if a != b)
        rows = {
            "the scale never grows.": max(seen[:5]) == 8,
            "growth and backoff are not the ones given to LossScaler(...): 4 and 0.25 here.": at in (2, 5) and seen[at] in (16, 4, 64),
            "the scale grows one step late: after interval good steps, not interval + 1.": at == 2 and seen[3] == 32,
            "the scale grows too early: it takes interval good steps.": at < 2 and seen[at] > 8,
            "the count of good steps does not start again after the scale has grown.": at in (3, 4, 5) and seen[at] > SCALES[at],
            "the count of good steps does not start again after an overflow: they must be in a row.": at in (6, 7) and seen[at] > SCALES[at],
            "after an overflow the count of good steps is not 0.": at == 8 and seen[at] < SCALES[at],
        }
        words = next((words for words, fits in rows.items() if fits), "the scale does not go as it should.")
        fail(
            words,
            example=f"scale 8, growth 4, backoff 0.25, interval 3; 5 good steps, bad, 3 good, ...: the scales are {seen[: at + 1]}, expected {SCALES[: at + 1]}",
            look="when good_steps counts, and where it returns to 0; ops.assign writes a Parameter",
        )
    if number(other.scale) != 2:
        fail("two scalers share their scale.", look="values of the class instead of values of self")


@checks(SCALER, "growth by default")
def growth_by_default(LossScaler):
    optimizer, scaler = optimizer_over(1e-6), LossScaler(scale=1.0)
    scaler.good_steps.set_data(ms.Tensor(1998, scaler.good_steps.dtype))
    for i, want in enumerate((1, 2)):
        step(scaler, optimizer, gradients(1.0))
        if number(scaler.scale) != want:
            fail(f"the scale is {number(scaler.scale):g} after {1999 + i} good steps, expected {want}: by default it doubles after 2000 good steps.", look="the defaults of growth and interval, and good_steps, which holds the count")


@checks(SCALER, "clipping by the true norm")
def clipping(LossScaler):
    for max_norm, size in ((1.0, 3.0), (0.5, 0.01)):
        optimizer = optimizer_over(1.0)
        before = optimizer.numbers()
        if not step(LossScaler(scale=1024.0), optimizer, gradients(1024.0 * size), max_norm):
            fail("the gradients are finite, and step says that it was skipped when max_norm is given.")
        want = expected_step(before, gradients(size), 1.0, max_norm)
        after = optimizer.numbers()
        moved, right = (math.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(x[:2], before[:2]))) for x in (after, want))
        if abs(moved - right) > 1e-3 * right:
            norm = math.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradients(size)))
            fail(in_pytorch.clipping_mistake(moved, norm, right), example=f"max_norm {max_norm}, scale 1024: a step of length {moved:.3g}, expected {right:.3g}", look="clip after the division, before the step; clip_grad_norm gives new gradients and the norm")


@checks(SCALER, "the same in graph mode", seconds=30)
def scaler_graph(LossScaler):
    optimizer, scaler = optimizer_over(), LossScaler(scale=8.0, growth=4.0, backoff=0.25, interval=2)
    want = optimizer.numbers()

    def update(a, b):
        return scaler.step(optimizer, (a, b), 1.0)

    compiled = ms.jit(update)
    scales = []
    for i, bad in enumerate([0, 0, 1, 0, 1, 0, 0]):
        scale = number(scaler.scale)
        grads = gradients(scale, seed=i, bad=math.nan if bad else None)
        with compiles():
            done = compiled(*map(ms.Tensor, grads))
            done = bool(number(done)) if done is not None else None
        if not bad:
            want = expected_step(want, gradients(1.0, seed=i), 0.1, 1.0)
        if done is not (not bad):
            fail(f"in graph mode step {i + 1} returns {done}, expected {not bad}.", look="what depends on the gradients must be a tensor: a Python bool is decided once, when the graph is built")
        scales.append(number(scaler.scale))
        for a, b in zip(optimizer.numbers(), want):
            if np.abs(a - b).max() > 1e-4:
                fail(
                    f"in graph mode step {i + 1}{', which must be skipped,' if bad else ''} leaves other numbers in the optimizer than eagerly.",
                    look="the branch: an if on a tensor is decided at each call, one on a Python value when the graph is built",
                )
    if scales != [8, 32, 8, 8, 2, 2, 8]:
        fail(f"in graph mode the scales are {scales}, expected [8, 32, 8, 8, 2, 2, 8].", look="scale and good_steps are written with ops.assign")
