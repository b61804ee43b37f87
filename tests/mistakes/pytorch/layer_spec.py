import functools
import types
from dataclasses import replace

import torch
from torch import nn

from solutions.pytorch import layer_spec
from solutions.pytorch.attention import attention
from solutions.pytorch.layer_spec import (
    AttentionSubmodules, FeedForward, Identity, Layer, LayerSubmodules, MLPSubmodules, ModuleSpec, RMSNorm, SelfAttention, exact_gelu, flash_attention,
)
from solutions.pytorch.layers import LayerNorm, gelu
from solutions.pytorch.primitives import Linear
from tests.mistakes import right, wrong

BUILD = "pytorch.layer_spec.build_module"
SPEC = "pytorch.layer_spec.get_gpt_layer_local_spec"

# --- build_module --------------------------------------------------------------------------------------


def parts(spec):
    return {} if spec.submodules is None else {"submodules": spec.submodules}


def refused(error, kind):
    return type(error)(f"{error} when instantiating {kind.__name__}")


@wrong(BUILD, "the class itself comes back and nothing is built")
def class_not_called(spec_or_class, *args, **kwargs):
    return spec_or_class if isinstance(spec_or_class, type) else spec_or_class.module


@wrong(BUILD, "the recipe itself comes back")
def recipe_handed_back(spec_or_class, *args, **kwargs):
    return spec_or_class(*args, **kwargs) if isinstance(spec_or_class, type) else spec_or_class


@wrong(BUILD, "the result is None")
def no_return(spec_or_class, *args, **kwargs):
    spec_or_class(*args, **kwargs) if isinstance(spec_or_class, type) else spec_or_class.module(*args, **kwargs)


@wrong(BUILD, "the argument height does not arrive")
def one_argument(spec_or_class, *args, **kwargs):
    return spec_or_class(args[0], **kwargs) if isinstance(spec_or_class, type) else spec_or_class.module(*args, **kwargs)


@wrong(BUILD, "the argument depth does not arrive")
def keywords_lost(spec_or_class, *args, **kwargs):
    return spec_or_class(*args)


@wrong(BUILD, "the argument depth does not arrive")
def params_lost(spec_or_class, *args, **kwargs):
    spec = ModuleSpec(spec_or_class) if isinstance(spec_or_class, type) else spec_or_class
    return spec.module(*args, **kwargs)


@wrong(BUILD, "by place: they are arguments by name")
def params_by_place(spec_or_class, *args, **kwargs):
    spec = ModuleSpec(spec_or_class) if isinstance(spec_or_class, type) else spec_or_class
    return spec.module(*args, *spec.params.values(), **kwargs)


@wrong(BUILD, "the argument height does not arrive")
def params_instead_of_keywords(spec_or_class, *args, **kwargs):
    if isinstance(spec_or_class, type):
        return spec_or_class(*args, **kwargs)
    return spec_or_class.module(*args, **(spec_or_class.params or kwargs))


@wrong(BUILD, "a function is called or refused")
def function_called(spec_or_class, *args, **kwargs):
    spec = spec_or_class if hasattr(spec_or_class, "params") else ModuleSpec(spec_or_class)
    return spec.module(*args, **spec.params, **kwargs)


@wrong(BUILD, "the recipe of a function comes back")
def function_still_wrapped(spec_or_class, *args, **kwargs):
    if isinstance(spec_or_class, types.FunctionType) or isinstance(getattr(spec_or_class, "module", None), types.FunctionType):
        return spec_or_class
    spec = spec_or_class if hasattr(spec_or_class, "params") else ModuleSpec(spec_or_class)
    return spec.module(*args, **spec.params, **kwargs)


@wrong(BUILD, "a function comes back as it is")
def function_bound(spec_or_class, *args, **kwargs):
    spec = spec_or_class if hasattr(spec_or_class, "params") else ModuleSpec(spec_or_class)
    if isinstance(spec.module, types.FunctionType):
        return functools.partial(spec.module, **spec.params)
    return spec.module(*args, **spec.params, **kwargs)


def plain(spec_or_class):
    """The recipe of whatever it is, and the function if it is one."""
    spec = spec_or_class if hasattr(spec_or_class, "params") else ModuleSpec(spec_or_class)
    return spec, spec.module if isinstance(spec.module, types.FunctionType) else None


@wrong(BUILD, "with an argument a function is called")
def function_called_with_arguments(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    if function is not None and not args:
        return function
    return spec.module(*args, **spec.params, **parts(spec), **kwargs)


@wrong(BUILD, "the recipes of the parts do not arrive")
def parts_lost(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    return function or spec.module(*args, **spec.params, **kwargs)


@wrong(BUILD, "the recipes of the parts do not arrive")
def parts_unpacked(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    return function or spec.module(*args, **spec.params, **vars(spec.submodules or types.SimpleNamespace()), **kwargs)


@wrong(BUILD, "a class without parts gets")
def parts_always(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    if isinstance(spec_or_class, type):
        return spec_or_class(*args, **kwargs)
    if spec.module.__name__ == "Part":
        return spec.module(*args, **spec.params, **kwargs)
    return function or spec.module(*args, **spec.params, submodules=spec.submodules, **kwargs)


@wrong(BUILD, "something else than spec.submodules")
def parts_built_early(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    if function or spec.submodules is None:
        return function or spec.module(*args, **spec.params, **kwargs)
    built = types.SimpleNamespace(**{name: parts_built_early(part, *args) for name, part in vars(spec.submodules).items()})
    return spec.module(*args, **spec.params, submodules=built, **kwargs)


@wrong(BUILD, "the recipe is changed by building")
def params_updated(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    if function:
        return function
    spec.params.update(kwargs)
    return spec.module(*args, **spec.params, **parts(spec))


BUILT = {}


@wrong(BUILD, "one and the same object")
def cached(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    if spec.module.__name__ != "Greedy" or spec.submodules is None:
        return function or spec.module(*args, **spec.params, **parts(spec), **kwargs)
    return BUILT.setdefault(id(spec), spec.module(*args, **spec.params, **parts(spec), **kwargs))


@wrong(BUILD, "does not say which class")
def error_without_the_class(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    return function or spec.module(*args, **spec.params, **parts(spec), **kwargs)


@wrong(BUILD, "becomes a RuntimeError")
def error_of_another_type(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    try:
        return function or spec.module(*args, **spec.params, **parts(spec), **kwargs)
    except (TypeError, ValueError) as error:
        raise RuntimeError(f"{error} when instantiating {spec.module.__name__}")


@wrong(BUILD, "the words of the class's own error are lost")
def error_without_words(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    try:
        return function or spec.module(*args, **spec.params, **parts(spec), **kwargs)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{spec.module.__name__} could not be built")


@wrong(BUILD, "is swallowed")
def error_swallowed(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    try:
        return function or spec.module(*args, **spec.params, **parts(spec), **kwargs)
    except ValueError:
        return None


@wrong(BUILD, "an error that does not say so")
def no_question_asked(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    try:
        return function or spec.module(*args, **spec.params, **parts(spec), **kwargs)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error} when instantiating {getattr(spec.module, '__name__', spec.module)}")


@wrong(BUILD, "is accepted: raise a TypeError")
def object_handed_back(spec_or_class, *args, **kwargs):
    spec, function = plain(spec_or_class)
    if not isinstance(spec.module, (type, types.FunctionType)):
        return spec_or_class
    try:
        return function or spec.module(*args, **spec.params, **parts(spec), **kwargs)
    except (TypeError, ValueError) as error:
        raise refused(error, spec.module)


def expected(spec_or_class):
    if not isinstance(getattr(spec_or_class, "module", spec_or_class), (type, types.FunctionType)):
        raise TypeError(f"a recipe, a class or a function was expected here, not {type(spec_or_class).__name__}")


@wrong(BUILD, "the parts arrive by place")
def parts_by_place(spec_or_class, *args, **kwargs):
    if getattr(spec_or_class, "submodules", None) is None:
        return layer_spec.build_module(spec_or_class, *args, **kwargs)
    return spec_or_class.module(*args, spec_or_class.submodules, **spec_or_class.params, **kwargs)


@wrong(BUILD, "an argument does not arrive at the class")
def arguments_lost(spec_or_class, *args, **kwargs):
    return layer_spec.build_module(spec_or_class, **kwargs)


@wrong(BUILD, "a class is refused")
def modules_only(spec_or_class, *args, **kwargs):
    if isinstance(spec_or_class, type) and not issubclass(spec_or_class, nn.Module):
        raise TypeError("this class is no nn.Module of PyTorch")
    return layer_spec.build_module(spec_or_class, *args, **kwargs)


@right(BUILD)
def asks_isinstance(spec_or_class, *args, **kwargs):
    if isinstance(spec_or_class, ModuleSpec):
        if isinstance(spec_or_class.module, types.FunctionType):
            return spec_or_class.module
        kind, more = spec_or_class.module, dict(spec_or_class.params)
        if spec_or_class.submodules is not None:
            more["submodules"] = spec_or_class.submodules
    elif isinstance(spec_or_class, types.FunctionType):
        return spec_or_class
    elif isinstance(spec_or_class, type):
        kind, more = spec_or_class, {}
    else:
        raise TypeError("a ModuleSpec, a class or a function is needed to build a module")
    try:
        return kind(*args, **more, **kwargs)
    except Exception as e:
        raise type(e)(f"{kind.__name__}: {e}")


@right(BUILD)
def as_mindformers_does(spec_or_module, *args, **kwargs):
    expected(spec_or_module)
    if isinstance(spec_or_module, types.FunctionType):
        return spec_or_module
    if isinstance(getattr(spec_or_module, "module", None), types.FunctionType):
        return spec_or_module.module
    module = spec_or_module if isinstance(spec_or_module, type) else spec_or_module.module
    if hasattr(spec_or_module, "submodules") and spec_or_module.submodules is not None:
        kwargs["submodules"] = spec_or_module.submodules
    try:
        return module(*args, **spec_or_module.params if hasattr(spec_or_module, "params") else {}, **kwargs)
    except Exception as e:
        raise type(e)(f"{e} when instantiating {module.__name__}") from e


@right(BUILD)
def partial_first(spec_or_class, *args, **kwargs):
    expected(spec_or_class)
    spec, function = plain(spec_or_class)
    if function:
        return function
    make = functools.partial(spec.module, *args, **{**spec.params, **parts(spec)})
    try:
        return make(**kwargs)
    except (ValueError, TypeError) as error:
        raise refused(error, spec.module)


@right(BUILD)
def calls_itself(spec_or_class, *args, **kwargs):
    expected(spec_or_class)
    if isinstance(spec_or_class, types.FunctionType):
        return spec_or_class
    if isinstance(spec_or_class, type):
        try:
            return spec_or_class(*args, **kwargs)
        except (ValueError, TypeError) as error:
            raise refused(error, spec_or_class)
    return calls_itself(spec_or_class.module, *args, **spec_or_class.params, **parts(spec_or_class), **kwargs)


# --- get_gpt_layer_local_spec --------------------------------------------------------------------------


def assembled(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False, **changes):
    """The right recipe, with parts exchanged by the path "attn.core_attention"."""
    norm = {"LayerNorm": LayerNorm, "RMSNorm": RMSNorm}.get(normalization)
    act = {"tanh": gelu, "exact": exact_gelu}.get(gelu_form)
    if norm is None or act is None:
        raise ValueError(f"{normalization!r} with {gelu_form!r}: LayerNorm or RMSNorm, tanh or exact are possible")
    core = flash_attention if use_flash_attention else attention
    qk = norm if qk_layernorm else Identity
    return layer_of(norm, norm, Linear, core, Linear, qk, qk, Linear, act, Linear)


def layer_of(ln_1, ln_2, c_attn, core, c_proj, q, k, c_fc, act, mlp_proj):
    attn = ModuleSpec(SelfAttention, submodules=AttentionSubmodules(c_attn, core, c_proj, q, k))
    mlp = ModuleSpec(FeedForward, submodules=MLPSubmodules(c_fc, act, mlp_proj))
    return ModuleSpec(Layer, submodules=LayerSubmodules(ln_1, attn, ln_2, mlp))


@wrong(SPEC, "which layers somebody owns")
def the_article(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    return {"start_layer": 0, "end_layer": 3, "num_local_layers": 3}


@wrong(SPEC, "a built layer comes back")
def built_at_once(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    config = types.SimpleNamespace(n_embd=12, n_head=3)
    return layer_spec.build_module(assembled(qk_layernorm, normalization, gelu_form, use_flash_attention), config)


@wrong(SPEC, "a class comes back")
def the_class(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    return Layer


@wrong(SPEC, "lacks the parts attn, ln_1, ln_2, mlp")
def without_parts(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    return ModuleSpec(Layer)


@wrong(SPEC, "lacks the parts attn, ln_1, ln_2, mlp")
def one_level_too_low(**settings):
    return ModuleSpec(Layer, submodules=assembled(**settings).submodules.attn.submodules)


@wrong(SPEC, "something that is built already")
def norm_built(**settings):
    spec = assembled(**settings)
    spec.submodules.ln_1 = LayerNorm(12)
    return spec


@wrong(SPEC, "something that is built already")
def core_with_weights(**settings):
    spec = assembled(**settings)
    spec.submodules.attn.submodules.c_proj = Linear(12, 12)
    return spec


KEPT = {}


@wrong(SPEC, "one and the same recipe")
def one_for_all(**settings):
    return KEPT.setdefault(tuple(sorted(settings.items())), assembled(**settings))


MLP_OF_ALL = ModuleSpec(FeedForward, submodules=MLPSubmodules(Linear, gelu, Linear))


@wrong(SPEC, "one and the same recipe")
def one_mlp(**settings):
    spec = assembled(**settings)
    spec.submodules.mlp = MLP_OF_ALL
    return spec


@wrong(SPEC, "gelu_form='exact' changes nothing")
def gelu_form_not_read(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    return assembled(qk_layernorm, normalization, use_flash_attention=use_flash_attention)


@wrong(SPEC, "the default has RMSNorm")
def rms_by_default(qk_layernorm=False, normalization="RMSNorm", gelu_form="tanh", use_flash_attention=False):
    return assembled(qk_layernorm, normalization, gelu_form, use_flash_attention)


@wrong(SPEC, "the default has a norm of queries and keys")
def qk_by_default(qk_layernorm=True, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    return assembled(qk_layernorm, normalization, gelu_form, use_flash_attention)


@wrong(SPEC, "the exact GELU (erf)")
def exact_by_default(qk_layernorm=False, normalization="LayerNorm", gelu_form="exact", use_flash_attention=False):
    return assembled(qk_layernorm, normalization, gelu_form, use_flash_attention)


@wrong(SPEC, "a smaller eps than GPT-2")
def eps_of_mindspore(**settings):
    spec = assembled(**settings)
    if settings.get("normalization", "LayerNorm") == "LayerNorm":
        spec.submodules.ln_1, spec.submodules.ln_2 = (ModuleSpec(LayerNorm, {"eps": 1e-7}) for _ in range(2))
    return spec


@wrong(SPEC, "leaves ln_2 as it was")
def only_the_first_norm(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    spec = assembled(qk_layernorm, normalization, gelu_form, use_flash_attention)
    spec.submodules.ln_2 = LayerNorm
    return spec


@wrong(SPEC, "also changes attn.core_attention")
def two_at_a_time(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    return assembled(qk_layernorm, normalization, gelu_form, use_flash_attention or gelu_form == "exact")


@wrong(SPEC, "leaves attn.k_layernorm as it was")
def queries_only(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    spec = assembled(qk_layernorm, normalization, gelu_form, use_flash_attention)
    spec.submodules.attn.submodules.k_layernorm = Identity
    return spec


@wrong(SPEC, "another norm than ln_1")
def qk_always_layernorm(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    spec = assembled(qk_layernorm, normalization, gelu_form, use_flash_attention)
    if qk_layernorm:
        inner = spec.submodules.attn.submodules
        inner.q_layernorm = inner.k_layernorm = LayerNorm
    return spec


def quick_gelu(x):
    return x * (1.702 * x).sigmoid()


@wrong(SPEC, "the result with gelu_form='exact'")
def another_gelu(**settings):
    spec = assembled(**settings)
    if settings.get("gelu_form") == "exact":
        spec.submodules.mlp.submodules.activation = quick_gelu
    return spec


@wrong(SPEC, "no parameter ln_1.weight")
def rms_without_weight(**settings):
    spec = assembled(**settings)
    if settings.get("normalization") == "RMSNorm":
        spec.submodules.ln_1, spec.submodules.ln_2 = Identity, Identity
        if settings.get("qk_layernorm"):
            spec.submodules.attn.submodules.q_layernorm = spec.submodules.attn.submodules.k_layernorm = Identity
    return spec


@wrong(SPEC, "the default has it already")
def flash_by_default(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=True):
    return assembled(qk_layernorm, normalization, gelu_form, use_flash_attention)


@wrong(SPEC, "the default core is attention of lesson 04")
def cores_exchanged(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    return assembled(qk_layernorm, normalization, gelu_form, not use_flash_attention)


def attention_again(q, k, v, mask):
    return attention(q, k, v, mask)


@wrong(SPEC, "still stores the whole matrix")
def flash_in_name_only(**settings):
    spec = assembled(**settings)
    if settings.get("use_flash_attention"):
        spec.submodules.attn.submodules.core_attention = attention_again
    return spec


class OneRMS(RMSNorm):
    """Hands out one object for each width, whoever asks."""

    kept = {}

    def __new__(cls, n_embd):
        return cls.kept.setdefault(n_embd, super().__new__(cls))

    def __init__(self, n_embd):
        if not hasattr(self, "weight"):
            super().__init__(n_embd)


@wrong(SPEC, "layers from one recipe share")
def a_class_with_one_object(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    spec = assembled(qk_layernorm, normalization, gelu_form, use_flash_attention)
    if normalization == "RMSNorm" and qk_layernorm:
        spec.submodules.ln_2 = OneRMS
        inner = spec.submodules.attn.submodules
        spec.submodules.ln_1 = inner.q_layernorm = inner.k_layernorm = OneRMS
    return spec


@wrong(SPEC, "is accepted, and a layer is built that nobody asked for")
def else_branches(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    return assembled(qk_layernorm, "LayerNorm" if normalization == "LayerNorm" else "RMSNorm", "tanh" if gelu_form == "tanh" else "exact", use_flash_attention)


@wrong(SPEC, "raises KeyError")
def looked_up_blindly(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    {"LayerNorm": LayerNorm, "RMSNorm": RMSNorm}[normalization], {"tanh": gelu, "exact": exact_gelu}[gelu_form]
    return assembled(qk_layernorm, normalization, gelu_form, use_flash_attention)


@wrong(SPEC, "made anew at each call")
def core_as_lambda(**settings):
    spec = assembled(**settings)
    core = spec.submodules.attn.submodules.core_attention
    spec.submodules.attn.submodules.core_attention = lambda q, k, v, mask: core(q, k, v, mask)
    return spec


@wrong(SPEC, "stands there without them")
def attention_without_parts(**settings):
    spec = assembled(**settings)
    spec.submodules.attn = SelfAttention
    return spec


@wrong(SPEC, "it knows no sizes")
def width_in_params(**settings):
    spec = assembled(**settings)
    spec.submodules.ln_1 = ModuleSpec(spec.submodules.ln_1, {"n_embd": 12})
    return spec


@wrong(SPEC, "stands at another's place")
def parts_exchanged(**settings):
    spec = assembled(**settings)
    parts = spec.submodules.attn.submodules
    parts.core_attention, parts.c_proj = parts.c_proj, parts.core_attention
    return spec


@right(SPEC)
def by_path(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    return assembled(qk_layernorm, normalization, gelu_form, use_flash_attention)


@right(SPEC)
def every_part_a_spec(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    spec = assembled(qk_layernorm, normalization, gelu_form, use_flash_attention)
    inner = spec.submodules.attn.submodules
    spec.submodules.ln_1, spec.submodules.ln_2 = ModuleSpec(spec.submodules.ln_1), ModuleSpec(spec.submodules.ln_2)
    inner.c_attn, inner.q_layernorm, inner.k_layernorm = ModuleSpec(Linear), ModuleSpec(inner.q_layernorm), ModuleSpec(inner.k_layernorm)
    inner.core_attention = ModuleSpec(inner.core_attention)
    return spec


@right(SPEC)
def replaced_afterwards(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    if normalization not in ("LayerNorm", "RMSNorm") or gelu_form not in ("tanh", "exact"):
        raise ValueError(f"there is no normalization {normalization} or no gelu_form {gelu_form}")
    spec = assembled()
    if normalization == "RMSNorm":
        spec.submodules = replace(spec.submodules, ln_1=RMSNorm, ln_2=RMSNorm)
    if qk_layernorm:
        inner = spec.submodules.attn.submodules
        spec.submodules.attn.submodules = replace(inner, q_layernorm=spec.submodules.ln_1, k_layernorm=spec.submodules.ln_1)
    if gelu_form == "exact":
        spec.submodules.mlp.submodules.activation = exact_gelu
    if use_flash_attention:
        spec.submodules.attn.submodules.core_attention = flash_attention
    return spec


class StockLinear(nn.Linear):
    pass


@right(SPEC)
def stock_classes_and_eps_in_params(qk_layernorm=False, normalization="LayerNorm", gelu_form="tanh", use_flash_attention=False):
    """torch's own classes in the recipe, with what they need as params."""
    assembled(qk_layernorm, normalization, gelu_form, use_flash_attention)
    norm = {"LayerNorm": nn.LayerNorm, "RMSNorm": torch.nn.RMSNorm}[normalization]
    kind = ModuleSpec(norm, {"eps": 1e-5})
    qk = kind if qk_layernorm else ModuleSpec(Identity)
    core = flash_attention if use_flash_attention else attention
    return layer_of(kind, kind, nn.Linear, core, nn.Linear, qk, qk, StockLinear, exact_gelu if gelu_form == "exact" else gelu, nn.Linear)
