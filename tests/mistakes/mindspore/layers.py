"""Wrong and right variants of lesson 13, GELU and the MLP; those of LayerNorm stand in layer_norm.py."""
import math

import mindspore as ms
import numpy as np
from mindspore import mint, nn, ops

from solutions.mindspore import layers as good
from solutions.mindspore.primitives import Linear
from tests.mistakes import right, wrong

GELU = "mindspore.layers.gelu"
MLP = "mindspore.layers.MLP"

# --- gelu ----------------------------------------------------------------------------------------------

A, B = math.sqrt(2 / math.pi), 0.044715


def form(x, z):
    return x * ops.sigmoid(2 * z)


@wrong(GELU, "exact GELU, with erf")
def gelu_by_default(x):
    return ops.gelu(x)


@wrong(GELU, "exact GELU, with erf")
def gelu_cell_exact(x):
    return nn.GELU(approximate=False)(x)


@wrong(GELU, "and ops.tanh is not")
def gelu_by_formula(x):
    return 0.5 * x * (1 + ops.tanh(A * (x + B * x**3)))


@wrong(GELU, "and ops.tanh is not")
def gelu_by_formula_with_pow(x):
    return 0.5 * x * (1.0 + ops.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * ops.pow(x, 3.0))))


@wrong(GELU, "1.702")
def gelu_fast(x):
    return x * ops.sigmoid(1.702 * x)


@wrong(GELU, "this is ReLU")
def gelu_relu(x):
    return ops.relu(x)


@wrong(GELU, "this is SiLU")
def gelu_silu(x):
    return x * ops.sigmoid(x)


@wrong(GELU, "sigmoid takes z")
def gelu_sigmoid_of_z(x):
    return x * ops.sigmoid(A * (x + B * x**3))


@wrong(GELU, "has no 0.5 before it")
def gelu_half_left_over(x):
    return 0.5 * x * ops.sigmoid(2 * A * (x + B * x**3))


@wrong(GELU, "sigmoid in the place of tanh")
def gelu_sigmoid_for_tanh(x):
    return 0.5 * x * (1 + ops.sigmoid(A * (x + B * x**3)))


@wrong(GELU, "constant is 0.44715")
def gelu_constant(x):
    return form(x, A * (x + 0.44715 * x**3))


@wrong(GELU, "sqrt(2)/pi")
def gelu_root_of_two_only(x):
    return form(x, math.sqrt(2) / math.pi * (x + B * x**3))


@wrong(GELU, "cubic term is missing")
def gelu_without_cube(x):
    return form(x, A * x)


@wrong(GELU, "a constant is rounded")
def gelu_rounded(x):
    return form(x, 0.798 * (x + B * x**3))


@wrong(GELU, "math.sqrt gives a plain number")
def gelu_numpys_root(x):
    return x * ops.sigmoid(2 * np.sqrt(2 / np.pi) * (x + B * x**3))


@wrong(GELU, "no kernel on this device")
def gelu_of_mint(x):
    return mint.nn.functional.gelu(x, approximate="tanh")


@wrong(GELU, "only as exact as float16")
def gelu_float16_inside(x):
    return ops.gelu(x.astype(ms.float16), approximate="tanh").astype(x.dtype)


@wrong(GELU, "large numbers overflow")
def gelu_by_exps(x):
    e = ops.exp(2 * A * (x + B * x**3))
    return x * e / (1 + e)


@wrong(GELU, "expected Float32")
def gelu_numpys_constant(x):
    return form(x, ms.Tensor(np.sqrt(np.full(1, 2 / np.pi))) * (x + B * x**3))


@wrong(GELU, "argument x is changed in place")
def gelu_in_place(x):
    x[...] = form(x, A * (x + B * x**3))
    return x


@wrong(GELU, "type numpy.ndarray")
def gelu_in_numpy(x):
    x = x.asnumpy()
    return x / (1 + np.exp(-2 * A * (x + B * x**3)))


@wrong(GELU, "is None")
def gelu_forgot_return(x):
    form(x, A * (x + B * x**3))


@wrong(GELU, "expected (1,)")
def gelu_squeezes(x):
    return good.gelu(x).squeeze()


@wrong(GELU, "depends on the others")
def gelu_scaled_by_largest(x):
    return good.gelu(x) * (1 - 1e-3 * float(x.max() > 40) * float(x.min() > -5))


@wrong(GELU, "no gradient reaches x")
def gelu_stopped(x):
    return good.gelu(ops.stop_gradient(x))


@wrong(GELU, "no gradient reaches x")
def gelu_through_numpy(x):
    return ms.Tensor(good.gelu(x).asnumpy())


@wrong(GELU, "the gradient of x")
def gelu_gate_stopped(x):
    return x * ops.stop_gradient(ops.sigmoid(2 * A * (x + B * x**3)))


@wrong(GELU, "gradient is nan or inf")
def gelu_by_one_exp(x):
    return x / (1 + ops.exp(-2 * A * (x + B * x**3)))


@wrong(GELU, "expected Float16")
def gelu_always_float32(x):
    return good.gelu(x.astype(ms.float32))


@wrong(GELU, "works eagerly and not in graph mode: try does not exist")
def gelu_tries(x):
    try:
        return good.gelu(x)
    except ValueError:
        return x


@wrong(GELU, "multiplies the whole bracket")
def gelu_factor_for_x_alone(x):
    return x * ops.sigmoid(2 * math.sqrt(2 / math.pi) * x + 0.044715 * x * x * x)


@wrong(GELU, "this is x * sigmoid(2 x)")
def gelu_sigmoid_of_two_x(x):
    return x * ops.sigmoid(2 * x)


@right(GELU)
def gelu_stock(x):
    return ops.gelu(x, approximate="tanh")


@right(GELU)
def gelu_cell(x):
    return nn.GELU()(x)


@right(GELU)
def gelu_primitive(x):
    return ops.GeLU()(x)


@right(GELU)
def gelu_by_products(x):
    cube = x * x * x
    return x * ops.sigmoid(2 * A * (x + B * cube))


@right(GELU)
def gelu_by_silu(x):
    two_z = 2 * A * x * (1 + B * ops.pow(x, 2))
    return ops.sigmoid(two_z) * x


# --- MLP -----------------------------------------------------------------------------------------------


class Net(nn.Cell):
    """The right parts, for the variants below to go wrong with."""

    width = 4

    def __init__(self, config):
        super().__init__()
        self.c_fc = Linear(config.n_embd, self.width * config.n_embd)
        self.c_proj = Linear(self.width * config.n_embd, config.n_embd)

    def act(self, x):
        return good.gelu(x)

    def construct(self, x):
        return self.c_proj(self.act(self.c_fc(x)))


@wrong(MLP, "as wide as its input")
class NetNotWider(Net):
    width = 1


@wrong(MLP, "is 18 wide")
class NetThreeTimes(Net):
    width = 3


@wrong(MLP, "are exchanged")
class NetWeightsInOut(Net):
    def __init__(self, config):
        super().__init__(config)
        for layer in (self.c_fc, self.c_proj):
            layer.weight = ms.Parameter(layer.weight.asnumpy().T.copy())


@wrong(MLP, "no parameter c_fc.bias")
class NetNoBias(Net):
    def __init__(self, config):
        super().__init__(config)
        self.c_fc = nn.Dense(config.n_embd, 4 * config.n_embd, has_bias=False)


@wrong(MLP, "no parameter c_fc.weight")
class NetOtherNames(nn.Cell):
    def __init__(self, config):
        super().__init__()
        self.net = nn.SequentialCell(nn.Dense(config.n_embd, 4 * config.n_embd), nn.GELU(), nn.Dense(4 * config.n_embd, config.n_embd))

    def construct(self, x):
        return self.net(x)


@wrong(MLP, "stand in a Python list")
class NetInAList(nn.Cell):
    def __init__(self, config):
        super().__init__()
        self.layers = [Linear(config.n_embd, 4 * config.n_embd), Linear(4 * config.n_embd, config.n_embd)]

    def construct(self, x):
        return self.layers[1](good.gelu(self.layers[0](x)))


@wrong(MLP, "a MindSpore cell runs construct")
class NetForward(nn.Cell):
    def __init__(self, config):
        super().__init__()
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x):
        return self.c_proj(good.gelu(self.c_fc(x)))


@wrong(MLP, "super().__init__() must come first")
class NetWithoutSuper(nn.Cell):
    def __init__(self, config):
        self.c_fc = Linear(config.n_embd, 4 * config.n_embd)

    def construct(self, x):
        return self.c_fc(x)


@wrong(MLP, "nothing between the two layers")
class NetLinear(Net):
    def act(self, x):
        return x


@wrong(MLP, "exact one, with erf")
class NetErf(Net):
    def act(self, x):
        return ops.gelu(x)


@wrong(MLP, "uses ops.tanh")
class NetTanh(Net):
    def act(self, x):
        return 0.5 * x * (1 + ops.tanh(A * (x + B * x**3)))


@wrong(MLP, "there is ReLU")
class NetReLU(Net):
    def act(self, x):
        return ops.relu(x)


@wrong(MLP, "GELU comes after c_proj")
class NetGeluAfterBoth(Net):
    def construct(self, x):
        return self.act(self.c_proj(self.c_fc(x)))


@wrong(MLP, "after c_proj as well")
class NetGeluAtTheEnd(Net):
    def construct(self, x):
        return self.act(super().construct(x))


@wrong(MLP, "bias of c_proj is not used")
class NetSecondBiasUnused(Net):
    def construct(self, x):
        return ops.matmul(self.act(self.c_fc(x)), self.c_proj.weight.swapaxes(0, 1))


@wrong(MLP, "residual belongs to the block")
class NetResidual(Net):
    def construct(self, x):
        return x + self.c_proj(self.act(self.c_fc(x)))


@wrong(MLP, "sleeps until set_train()")
class NetDropsMost(Net):
    def __init__(self, config):
        super().__init__(config)
        self.dropout = nn.Dropout(0.1)

    def construct(self, x):
        return self.dropout(self.c_proj(self.act(self.c_fc(x))))


@wrong(MLP, "is None")
class NetForgotReturn(Net):
    def construct(self, x):
        self.c_proj(self.act(self.c_fc(x)))


@wrong(MLP, "expected (12, 3)")
class NetWidthWrittenDown(Net):
    def __init__(self, config):
        super().__init__(config)
        self.c_fc, self.c_proj = Linear(config.n_embd, 24), Linear(24, config.n_embd)


@wrong(MLP, "another position")
class NetMixesPositions(Net):
    def construct(self, x):
        return self.c_proj(self.act(self.c_fc(x))) + 1e-3 * float(ops.abs(x).max() > 10)


@wrong(MLP, "no gradient reaches c_fc.weight")
class NetFirstLayerOutOfReach(Net):
    def construct(self, x):
        inner = ops.matmul(x, ops.stop_gradient(self.c_fc.weight).swapaxes(0, 1)) + self.c_fc.bias
        return self.c_proj(self.act(inner))


@wrong(MLP, "expected Float16")
class NetFloat32(Net):
    def construct(self, x):
        return self.c_proj(self.act(self.c_fc(x))).astype(ms.float32)


@wrong(MLP, "works eagerly and not in graph mode")
class NetTries(Net):
    def construct(self, x):
        try:
            x = self.c_fc(x)
        except ValueError:
            x = self.c_fc(x.swapaxes(-1, -2))
        return self.c_proj(self.act(x))


@right(MLP)
class NetStock(nn.Cell):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Dense(config.n_embd, 4 * config.n_embd)
        self.act = nn.GELU(approximate=True)
        self.c_proj = nn.Dense(4 * config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(p=0.0)

    def construct(self, x):
        return self.dropout(self.c_proj(self.act(self.c_fc(x))))


@right(MLP)
class NetWithActivationInside(Net):
    def __init__(self, config):
        super().__init__(config)
        self.c_fc = nn.Dense(config.n_embd, 4 * config.n_embd, activation="gelu")

    def construct(self, x):
        return self.c_proj(self.c_fc(x))


@right(MLP)
class NetForThreeAxes(Net):
    def construct(self, x):
        B, T, C = x.shape
        return self.c_proj(self.act(self.c_fc(x.view(B * T, C)))).view(B, T, C)


@right(MLP)
class NetByProducts(Net):
    def construct(self, x):
        h = x @ self.c_fc.weight.T + self.c_fc.bias
        h = h * ops.sigmoid(2 * A * (h + B * h**3))
        return h @ self.c_proj.weight.T + self.c_proj.bias


@right(MLP)
class NetFlattened(Net):
    def construct(self, x):
        rows = x.reshape(-1, x.shape[-1])
        rows = self.c_fc(rows)
        return self.c_proj(ops.gelu(rows, approximate="tanh")).reshape(x.shape)


@right(MLP)
class NetInQuarters(Net):
    def construct(self, x):
        C = x.shape[-1]
        out = self.c_proj.bias
        for i in range(4):
            W, b = self.c_fc.weight[i * C : (i + 1) * C], self.c_fc.bias[i * C : (i + 1) * C]
            h = good.gelu(ops.matmul(x, W.swapaxes(0, 1)) + b)
            out = out + ops.matmul(h, self.c_proj.weight[:, i * C : (i + 1) * C].swapaxes(0, 1))
        return out
