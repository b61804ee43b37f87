"""Checks of lesson 19, first half: build_module, get_gpt_layer_local_spec. Oracles are small classes of this file and lesson 06's functional GPT-2."""
from dataclasses import dataclass, field
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from course.checks import checks
from course.checks.pytorch import call, close, fail, fill, parameters_are, rand
from course.checks.pytorch import gpt as oracle

BUILD = "pytorch.layer_spec.build_module"
SPEC = "pytorch.layer_spec.get_gpt_layer_local_spec"


# --- build_module --------------------------------------------------------------------------------------


@dataclass
class Recipe:
    """A ModuleSpec for answers that bring none of their own."""

    module: Any
    params: dict = field(default_factory=dict)
    submodules: Any = None


class Part:
    """Remembers what it is made with."""

    def __init__(self, width, height=1, depth=1):
        self.width, self.height, self.depth = width, height, depth


class Whole:
    """Also takes the recipes of its parts."""

    def __init__(self, width, submodules, height=1):
        self.width, self.height, self.submodules = width, height, submodules


class Greedy:
    """Takes whatever comes."""

    def __init__(self, *args, **kwargs):
        self.args, self.kwargs = args, kwargs


def weightless(x):
    return x + 1


def recipe_class(build_module):
    """The ModuleSpec that the answer knows, for those who ask isinstance."""
    return getattr(build_module, "__globals__", {}).get("ModuleSpec", Recipe)


def made(build_module, wanted, *args, **kwargs):
    """build_module(wanted, ...) where an object of a class is expected."""
    kind = wanted if isinstance(wanted, type) else wanted.module
    got = build_module(wanted, *args, **kwargs)
    if got is None:
        fail("the result is None. Is there a return at the end of every branch?")
    if got is kind:
        fail("the class itself comes back and nothing is built: call it.", example=f"build_module({kind.__name__}, 3) is the class {kind.__name__}")
    if got is wanted:
        fail("the recipe itself comes back and nothing is built.", example=f"build_module(ModuleSpec({kind.__name__}), 3) is the ModuleSpec")
    if not isinstance(got, kind):
        fail(f"the result should be a new {kind.__name__} and is of type {type(got).__name__}.")
    return got


def arrives(build_module, wanted, *args, **kwargs):
    """made(), with a word about what a class was built with if it stops."""
    try:
        return made(build_module, wanted, *args, **kwargs)
    except TypeError as error:
        words = [*map(repr, args), *(f"{k}={v!r}" for k, v in kwargs.items())]
        what = wanted.__name__ if isinstance(wanted, type) else f"ModuleSpec({wanted.module.__name__}{f', {wanted.params}' if wanted.params else ''})"
        lost = "missing" in str(error) and "required" in str(error)
        fail(
            "an argument does not arrive at the class: those of the call and the params of the recipe go to it while it is built." if lost else "a class is refused, or built with other arguments than were given.",
            example=f"build_module({', '.join([what, *words])}): TypeError: {str(error)[:120]}",
            look="what stands in the brackets of the call that builds" if lost else "the questions before it: any class is right, of whichever framework",
        )


def sizes_are(got, example, **wanted):
    for name, want in wanted.items():
        value = getattr(got, name)
        if value != want:
            fail(f"the argument {name} does not arrive at the class.", example=f"{example} has {name} = {value!r}, expected {want!r}", look="what stands in the brackets of the call that builds")


@checks(BUILD, "a class")
def build_class(build_module):
    sizes_are(arrives(build_module, Part, 3), "build_module(Part, 3)", width=3, height=1)
    sizes_are(arrives(build_module, Part, 3, 4), "build_module(Part, 3, 4)", width=3, height=4)
    sizes_are(arrives(build_module, Part, 3, depth=5), "build_module(Part, 3, depth=5)", width=3, height=1, depth=5)


@checks(BUILD, "a recipe")
def build_recipe(build_module):
    spec = recipe_class(build_module)
    sizes_are(arrives(build_module, spec(Part), 3), "build_module(ModuleSpec(Part), 3)", width=3, height=1)
    got = arrives(build_module, spec(Part, {"depth": 7}), 3)
    if got.depth != 7 and got.height == 7:
        fail("the params of the recipe go to the class by place: they are arguments by name.", example='ModuleSpec(Part, {"depth": 7}) sets height', look="** before a dict hands it over by name")
    sizes_are(got, 'build_module(ModuleSpec(Part, {"depth": 7}), 3)', width=3, height=1, depth=7)
    got = arrives(build_module, spec(Part, {"depth": 7}), 3, height=2)
    sizes_are(got, 'build_module(ModuleSpec(Part, {"depth": 7}), 3, height=2)', width=3, height=2, depth=7)
    sizes_are(arrives(build_module, spec(Part, {"width": 9})), 'build_module(ModuleSpec(Part, {"width": 9}))', width=9)


@checks(BUILD, "a function")
def build_function(build_module):
    spec = recipe_class(build_module)
    for wanted, words in [(weightless, "build_module(gelu)"), (spec(weightless), "build_module(ModuleSpec(gelu))")]:
        try:
            got = build_module(wanted)
        except TypeError as error:
            fail("a function is called or refused: it holds no weights and comes back as it is.", example=f"{words}: TypeError: {error}", look="types.FunctionType, and the order of the questions")
        if isinstance(got, type(spec(weightless))):
            fail("the recipe of a function comes back: the function in it is wanted.", example=f"{words} is a ModuleSpec")
        if got is not weightless:
            fail("a function comes back as it is: it holds no weights, there is nothing to build.", example=f"{words} is of type {type(got).__name__}, expected the function gelu")
    if build_module(weightless, 8) is not weightless:
        fail("with an argument a function is called: it comes back as it is, whoever builds the layer hands sizes to everything.", example="build_module(gelu, 8)")


@checks(BUILD, "the parts")
def build_parts(build_module):
    spec = recipe_class(build_module)
    parts = SimpleNamespace(inner=spec(Part, {"height": 2}), act=weightless)
    try:
        got = made(build_module, spec(Whole, {"height": 4}, parts), 3)
    except TypeError as error:
        fail("the recipes of the parts do not arrive: the class gets them as its argument submodules.", example=f"TypeError: {error}", look="submodules= among the arguments by name")
    if got.submodules is None:
        fail("the argument submodules is None: the class gets spec.submodules.")
    if got.submodules is not parts:
        fail("the class gets something else than spec.submodules: hand them over as they are. The class itself builds its parts, since only it knows their sizes.", example=f"submodules is of type {type(got.submodules).__name__}")
    sizes_are(got, "build_module(ModuleSpec(Whole, {...}, parts), 3)", width=3, height=4)
    got = made(build_module, spec(Greedy, {}, parts), 3)
    if got.args != (3,):
        fail("the parts arrive by place: a class with other arguments in front would take them for a size. They go along by name, as submodules.", example="the class gets them behind its first argument", look="submodules= among the arguments by name")
    got = made(build_module, spec(Greedy), 3)
    if got.kwargs or got.args != (3,):
        extra = ", ".join([*map(str, got.args[1:]), *got.kwargs])
        fail("a class without parts gets an argument too many: submodules is handed over only if the recipe has some.", example=f"a class built with build_module(ModuleSpec(Linear), 3) also gets {extra}")
    for bare in (Greedy, spec(Greedy, {"bias": False})):
        got = made(build_module, bare, 3)
        if "submodules" in got.kwargs:
            fail("a class without parts gets the argument submodules: it is handed over only if the recipe has some.", example="build_module(Linear, 3, 4): Linear knows no submodules")


@checks(BUILD, "the recipe stays as it is")
def build_pure(build_module):
    spec = recipe_class(build_module)
    parts = SimpleNamespace(inner=Part)
    given = spec(Greedy, {"height": 2}, parts)
    first = made(build_module, given, 3, depth=5)
    if given.params != {"height": 2} or given.submodules is not parts or given.module is not Greedy:
        fail("the recipe is changed by building: the next build would get the arguments of this one.", example=f'params was {{"height": 2}} and is now {sorted(given.params)}', look="update, pop and assignments into spec.params; make a new dict")
    second = made(build_module, given, 4)
    if first is second:
        fail("two builds give one and the same object: each call builds anew, or the layers of a model share their weights.", look="a cache")
    if second.kwargs.get("depth") == 5 or second.args != (4,):
        fail("the second build gets arguments of the first.", example=f"build_module(spec, 3, depth=5), then build_module(spec, 4) gets {second.args} and {sorted(second.kwargs)}", look="what is kept from call to call")
    one, two = made(build_module, nn.Linear, 3, 4), made(build_module, nn.Linear, 3, 4)
    if one is two or one.weight is two.weight:
        fail("two builds of one class share their weights: each call builds anew.", look="a cache")


class Refuses:
    def __init__(self, kind):
        raise kind("the width must be even")


@checks(BUILD, "errors")
def build_errors(build_module):
    spec = recipe_class(build_module)
    for kind in (ValueError, TypeError):
        for wanted in (Refuses, spec(Refuses)):
            try:
                build_module(wanted, kind)
            except kind as error:
                if "the width must be even" not in str(error):
                    fail("the words of the class's own error are lost: keep them and add to them.", example=f"the class said 'the width must be even', the error says {str(error)!r}")
                if "Refuses" not in str(error):
                    fail("the error does not say which class could not be built: in a recipe of a dozen parts this is what one needs to know.", example=f"{kind.__name__}: {str(error)[:80]}; expected also the class's __name__")
            except Exception as error:
                fail(f"a {kind.__name__} of the class becomes a {type(error).__name__}: raise the same type again.", look="type(error)(...)")
            else:
                fail(f"a {kind.__name__} of the class is swallowed.")
    for nothing in (None, "Linear", 3, [Part], Part(3), SimpleNamespace(module="Linear", params={}, submodules=None)):
        words = f"build_module({'None' if nothing is None else 'an object' if isinstance(nothing, (Part, SimpleNamespace)) else repr(nothing) if not isinstance(nothing, list) else 'a list'})"
        try:
            build_module(nothing)
        except TypeError as error:
            if len(str(error).split()) < 4 or "has no attribute" in str(error) or "not callable" in str(error):
                fail("what is no recipe, no class and no function gets an error that does not say so: tell in one sentence what was expected.", example=f"{words}: TypeError: {error}")
        except Exception as error:
            fail(f"what is no recipe, no class and no function raises {type(error).__name__}; a TypeError with a sentence is wanted.", example=f"{words}: {type(error).__name__}: {str(error)[:60]}")
        else:
            fail("what is no recipe, no class and no function is accepted: raise a TypeError that says what was expected.", example=words)


# --- get_gpt_layer_local_spec --------------------------------------------------------------------------

PARTS = {"ln_1", "attn", "ln_2", "mlp"}
RMS = oracle.BLOCK_SHAPES.keys() - {"ln_1.bias", "ln_2.bias"}
HEAD = 4                                                      # width of one head for n_embd = 12 and n_head = 3


def recipe(get_spec, **settings):
    """get_spec(**settings), which must be the recipe of one layer."""
    got = get_spec(**settings)
    if got is None:
        fail("the result is None. Is there a return at the end?")
    if isinstance(got, nn.Module):
        fail("a built layer comes back: the recipe is wanted, which build_module builds later, once for each layer.", example=f"the result is a {type(got).__name__} with weights", look="the last call of build_module, and brackets behind Layer")
    if isinstance(got, (dict, range)):
        fail("the result says which layers somebody owns, or is a plain dict: this function knows no ranks and no layer numbers. It gives the recipe of one layer, a ModuleSpec.")
    if isinstance(got, type):
        fail("a class comes back: a ModuleSpec with the class and the recipes of its parts is wanted.", example=f"the result is the class {got.__name__}")
    missing = [name for name in ("module", "params", "submodules") if not hasattr(got, name)]
    if missing:
        fail(f"the result should be a ModuleSpec and is of type {type(got).__name__}.")
    if not isinstance(got.module, type):
        fail("the module of the recipe is no class.", example=f"spec.module is of type {type(got.module).__name__}, expected the class Layer")
    found = set(vars(got.submodules)) if hasattr(got.submodules, "__dict__") else set()
    if not PARTS <= found:
        fail(f"the recipe lacks the parts {', '.join(sorted(PARTS - found))}.", example=f"spec.submodules has {', '.join(sorted(found)) or 'nothing'}; expected LayerSubmodules(ln_1=..., attn=..., ln_2=..., mlp=...)")
    return got


def leaves(value, path=""):
    """path -> class, function or param of a recipe, all the way down."""
    if hasattr(value, "module") and hasattr(value, "submodules"):
        found = {path + "()": value.module, **{f"{path}({k})": v for k, v in value.params.items()}}
        return found | (leaves(value.submodules, path) if value.submodules is not None else {})
    if hasattr(value, "__dict__") and not isinstance(value, (type, FunctionType, nn.Module, torch.Tensor)):
        return {k: v for name, part in vars(value).items() for k, v in leaves(part, f"{path}.{name}" if path else name).items()}
    return {path: value}


def inner(value):
    """Every recipe and every set of parts inside a recipe: what somebody may write into."""
    if hasattr(value, "__dict__") and not isinstance(value, (type, FunctionType)):
        yield value
        for part in vars(value).values():
            yield from inner(part)


def layer(spec, sizes=oracle.CONFIG, seed=0):
    try:
        built = spec.module(oracle.config(sizes), **spec.params, submodules=spec.submodules)
    except TypeError as error:
        if "submodules" in str(error) and "missing" in str(error):
            words, look = "a class that is put together from parts stands there without them: it needs a ModuleSpec with its submodules.", "the parts attn and mlp"
        elif "multiple values" in str(error):
            words, look = "the recipe holds an argument that comes from config when the layer is built: it knows no sizes.", "params"
        else:
            words, look = "no layer can be built from the recipe: a part is of the wrong kind, or stands at another's place.", "the order of the parts, and what each of them is"
        fail(words, example=f"build_module(spec, config): TypeError: {str(error)[:160]}", look=look)
    fill(built, seed)
    return built, dict(built.named_parameters())


@checks(SPEC, "a recipe of one layer")
def spec_kind(get_spec):
    recipe(get_spec)


@checks(SPEC, "classes and functions, no weights")
def spec_pure(get_spec):
    spec = recipe(get_spec)
    for path, value in leaves(spec).items():
        if isinstance(value, (nn.Module, torch.Tensor)):
            fail("the recipe holds something that is built already: every layer made from it would share these weights.", example=f"{path.replace('()', '')} is an object of {type(value).__name__}", look="build_module and brackets behind a class: name the class, do not call it")
        if isinstance(value, type) or callable(value):
            continue
        if path.endswith("()") or "(" not in path:
            fail("a part of the recipe is neither a class, nor a function, nor a recipe.", example=f"{path.replace('()', '')} is of type {type(value).__name__}")
    again = recipe(get_spec)
    one, two = leaves(spec), leaves(again)
    for path, value in one.items():
        if (path.endswith("()") or "(" not in path) and value is not two.get(path):
            fail("a part is made anew at each call, so that no two recipes are equal: name a class or a function that is there already.", example=f"{path.replace('()', '')} is {getattr(value, '__name__', value)!r}, and another object in the next recipe", look="lambda, def and class inside the function")
    shared = {id(part) for part in inner(spec)} & {id(part) for part in inner(again)}
    if shared:
        fail("two calls give one and the same recipe: whoever swaps a part in one changes the other.", look="a recipe that is made outside of the function, as a default argument, or kept in a cache")
    if spec.params is again.params:
        fail("two recipes share one params dict: whoever changes one changes the other.")


@checks(SPEC, "the default is lesson 06's Block")
def spec_default(get_spec):
    built, p = layer(recipe(get_spec))
    names = set(p)
    if any("q_layernorm" in name for name in names):
        fail("the default has a norm of queries and keys; without qk_layernorm these parts are Identity, which has no weights.", example=", ".join(sorted(n for n in names if "layernorm" in n)))
    if names == RMS:
        fail("the default has RMSNorm; GPT-2's norm is LayerNorm.", example="ln_1 has no bias")
    parameters_are(built, oracle.BLOCK_SHAPES, "the layer")
    x = rand(2, 5, 12, seed=31)
    close(call(built, x), oracle.block_forward(p, "", x, 3), 1e-5, known=oracle.block_known(p, x, 3), look="which class or function stands at which part")
    small = 1e-2 * x
    close(call(built, small), oracle.block_forward(p, "", small, 3), 1e-5, name="the result for a small x", known=oracle.block_known(p, small, 3), look="params of the norms: eps is 1e-5, their own default")
    longer = rand(1, 7, 8, seed=32)
    built, p = layer(recipe(get_spec), oracle.OTHER)
    close(call(built, longer), oracle.block_forward(p, "", longer, 2), 1e-5, name="the result for n_embd = 8 and n_head = 2", look="sizes in params: they come from config when the layer is built")


def rms(p, name, x):
    return p[name + ".weight"] * x / (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()


def switched(p, x, norm=oracle.norm, gelu=oracle.gelu, qk=None):
    """The layer as functions of its parameters."""
    q, k, v = (torch.stack(part.chunk(3, dim=-1), dim=1) for part in F.linear(norm(p, "ln_1", x), p["attn.c_attn.weight"], p["attn.c_attn.bias"]).chunk(3, dim=-1))
    if qk is not None:
        q, k = qk(p, "attn.q_layernorm", q), qk(p, "attn.k_layernorm", k)
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    x = x + oracle.linear(p, "attn.c_proj", torch.cat(list(y.unbind(1)), dim=-1))
    return x + oracle.think(p, "mlp", norm(p, "ln_2", x), gelu)


QK = {f"attn.{n}_layernorm.{kind}" for n in "qk" for kind in ("weight", "bias")}

# settings -> (parts that differ from the default, parameter names that come and go, the layer as a function)
SWITCHES = [
    ({"normalization": "RMSNorm"}, {"ln_1", "ln_2"}, set(), {"ln_1.bias", "ln_2.bias"}, {"norm": rms}),
    ({"gelu_form": "exact"}, {"mlp.activation"}, set(), set(), {"gelu": F.gelu}),
    ({"qk_layernorm": True}, {"attn.q_layernorm", "attn.k_layernorm"}, QK, set(), {"qk": oracle.norm}),
    ({"use_flash_attention": True}, {"attn.core_attention"}, set(), set(), {}),
]


def said(settings):
    return ", ".join(f"{k}={v!r}" for k, v in settings.items())


@checks(SPEC, "each switch changes its part and no other")
def spec_switches(get_spec):
    default = leaves(recipe(get_spec))
    for settings, parts, *_ in SWITCHES:
        found = leaves(recipe(get_spec, **settings))
        changed = {path.replace("()", "").split("(")[0] for path in default.keys() | found.keys() if default.get(path) != found.get(path)}
        if not changed:
            fail(f"{said(settings)} changes nothing in the recipe: it is not read, or the default has it already.", look="the defaults of the arguments, and where each of them is read")
        for part in sorted(parts - changed):
            fail(f"{said(settings)} leaves {part} as it was.", example=f"changed: {', '.join(sorted(changed))}; expected: {', '.join(sorted(parts))}")
        for part in sorted(changed - parts):
            fail(f"{said(settings)} also changes {part}: a switch swaps its own part and leaves the others alone.", example=f"changed: {', '.join(sorted(changed))}; expected: {', '.join(sorted(parts))}")
    both = leaves(recipe(get_spec, qk_layernorm=True, normalization="RMSNorm"))
    for name in ("attn.q_layernorm", "attn.k_layernorm"):
        if both.get(name, both.get(name + "()")) != both.get("ln_1", both.get("ln_1()")):
            fail(f"with normalization='RMSNorm' and qk_layernorm=True {name} is another norm than ln_1: normalization is the norm everywhere in the layer.")


@checks(SPEC, "what each switch computes")
def spec_switch_values(get_spec):
    x = rand(2, 5, 12, seed=33)
    for settings, _, more, less, change in SWITCHES:
        built, p = layer(recipe(get_spec, **settings))
        shapes = {n: s for n, s in oracle.BLOCK_SHAPES.items() if n not in less} | {n: (HEAD,) for n in more}
        parameters_are(built, shapes, f"the layer with {said(settings)}")
        wanted = switched(p, x, **change)
        known = [] if more or less else [(f"{said(settings)} computes what {words}.", switched(p, x, gelu=f)) for words, f in [("the other form does", oracle.gelu), ("a ReLU does", torch.relu), ("a SiLU does", F.silu)] if change]
        close(call(built, x), wanted, 1e-5, name=f"the result with {said(settings)}", known=known, look="which class or function stands at which part")


class Shapes(TorchDispatchMode):
    """Shapes of all float tensors that come up."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        out = operation(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out.is_floating_point():
            self.seen.add(tuple(out.shape[-2:]))
        return out


@checks(SPEC, "the attention core")
def spec_core(get_spec):
    x = rand(1, 101, 12, seed=34)
    for flash in (False, True):
        built, p = layer(recipe(get_spec, use_flash_attention=flash))
        with Shapes() as shapes:
            got = built(x)
        stored = (101, 101) in shapes.seen
        if stored == flash:
            if flash:
                fail("use_flash_attention=True still stores the whole matrix of scores.", example="for T = 101 a tensor with (101, 101) comes up", look="which of the two cores stands there")
            fail("without use_flash_attention the scores never stand together as one (T, T) matrix: the default core is attention of lesson 04.", look="whether the two cores are exchanged")
        close(got, oracle.block_forward(p, "", x, 3), 1e-5, name=f"the result for T = 101 with use_flash_attention={flash}")


@checks(SPEC, "two builds share nothing")
def spec_builds(get_spec):
    for settings in ({}, {"qk_layernorm": True, "normalization": "RMSNorm"}):
        spec = recipe(get_spec, **settings)
        (a, _), (b, _) = layer(spec), layer(spec)
        shared = {id(p) for p in a.parameters()} & {id(p) for p in b.parameters()}
        own = [id(p) for _, p in a.named_parameters(remove_duplicate=False)]
        if shared or len(own) != len(set(own)):
            names = [n for n, p in a.named_parameters(remove_duplicate=False) if id(p) in shared or own.count(id(p)) > 1]
            fail(f"layers from one recipe share {names[0]}: whoever trains one trains the other.", look="parts that are built inside the recipe, or classes that hand out one object")


@checks(SPEC, "words it does not know")
def spec_errors(get_spec):
    for settings in ({"normalization": "BatchNorm"}, {"gelu_form": "fast"}, {"normalization": None}, {"gelu_form": "LayerNorm"}, {"normalization": "rmsnorm"}):
        (name, value), = settings.items()
        try:
            get_spec(**settings)
        except ValueError as error:
            if len(str(error).split()) < 4 or str(value) not in str(error):
                fail("the ValueError does not help: tell what was given and what there is.", example=f"{said(settings)}: ValueError: {error}")
        except Exception as error:
            fail(f"{said(settings)} raises {type(error).__name__}; a ValueError with a sentence is wanted.", example=f"{type(error).__name__}: {str(error)[:60]}", look="look the word up only after asking whether it is there")
        else:
            fail(f"{said(settings)} is accepted, and a layer is built that nobody asked for: raise a ValueError.", look="else branches that stand for everything else")
