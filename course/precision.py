"""In which dtype each part of a GPT computes: a policy, the same for both frameworks."""
from dataclasses import dataclass, fields
from types import ModuleType, SimpleNamespace

NAMES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class LayerPrecision:
    """A dtype name for each part of a GPT; the weights themselves stay float32 (Micikevicius et al. 2018, section 3.1).

    embedding: the rows as they are read, and the residual stream that they begin.
    qkv: the two linear layers of attention and its two products.
    softmax: the scores from the mask to the weights.
    norm: the statistics of every LayerNorm.
    mlp: the two linear layers of the MLP and the GELU between them.
    head: the product that gives the logits. The loss is always computed in float32.

    Raises:
        ValueError: a name that is no dtype, or float16 and bfloat16 in one policy.
    """

    embedding: str = "float32"
    qkv: str = "float32"
    softmax: str = "float32"
    norm: str = "float32"
    mlp: str = "float32"
    head: str = "float32"

    def __post_init__(self):
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        for part, name in parts.items():
            if name not in NAMES:
                raise ValueError(f"{part} is {name!r} and must be the name of a dtype: {', '.join(map(repr, NAMES[:-1]))} or {NAMES[-1]!r}.")
        owner = {name: part for part, name in parts.items()}
        if "float16" in owner and "bfloat16" in owner:
            raise ValueError(
                f"{owner['float16']} is float16 and {owner['bfloat16']} is bfloat16: where the two meet, numbers lose the range of one and the "
                "digits of the other; take one of them beside float32."
            )

    @classmethod
    def everywhere(cls, name):
        """The policy with one dtype for all parts."""
        return cls(*[name] * len(fields(cls)))

    def dtypes(self, framework):
        """The policy as dtypes of a framework, under the same names: policy.dtypes(torch).qkv is torch.float16.

        framework: the module torch or mindspore.

        Raises:
            TypeError: something else than one of the two modules.
            ValueError: bfloat16 for MindSpore on a CPU, which has no such products.
        """
        name = framework.__name__ if isinstance(framework, ModuleType) else framework
        if not isinstance(framework, ModuleType) or name not in ("torch", "mindspore"):
            raise TypeError(f"dtypes takes the module torch or mindspore, and was given {name!r}.")
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        for part, dtype in parts.items():
            if dtype == "bfloat16" and name == "mindspore" and framework.get_context("device_target") == "CPU":
                raise ValueError(
                    f"{part} is bfloat16, and MindSpore has no bfloat16 matmul, softmax or mean on a CPU: take float16 here, or run on an Ascend."
                )
        return SimpleNamespace(**{part: getattr(framework, dtype) for part, dtype in parts.items()})
