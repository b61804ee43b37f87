"""Every exercise of the course: its id, its lesson and its points."""
import difflib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LESSONS = {
    "00": "start_here",
    "01": "tokens_and_batches",
    "02": "primitives_and_gradients",
    "03": "embeddings",
    "04": "causal_attention",
    "05": "layernorm_and_ffn",
    "06": "gpt",
    "07": "training",
    "08": "sampling",
    "09": "gpt2_weights",
    "10": "mindspore_basics",
    "11": "port_embeddings",
    "12": "port_causal_attention",
    "13": "port_ffn",
    "14": "port_layernorm",
    "15": "port_gpt",
    "16": "port_training",
    "17": "layer_speed",
    "18": "precision",
    "19": "layer_spec_and_stages",
    "20": "many_processes",
    "21": "on_ascend",
    "22": "claims",
}

POINTS = {
    "00": {"pytorch.warmup.average_past": 1},
    "01": {
        "pytorch.tokens.CharTokenizer": 2,
        "pytorch.tokens.merge_pair": 2,
        "pytorch.tokens.train_bpe": 4,
        "pytorch.tokens.BPETokenizer": 4,
        "pytorch.tokens.save_tokens": 1,
        "pytorch.tokens.get_batch": 3,
    },
    "02": {
        "pytorch.primitives.linear": 1,
        "pytorch.primitives.linear_backward": 2,
        "pytorch.primitives.softmax": 2,
        "pytorch.primitives.softmax_backward": 2,
        "pytorch.primitives.log_softmax": 2,
        "pytorch.primitives.log_softmax_backward": 2,
        "pytorch.primitives.cross_entropy": 3,
        "pytorch.primitives.cross_entropy_backward": 2,
        "pytorch.primitives.Linear": 1,
    },
    "03": {
        "pytorch.embeddings.one_hot": 1,
        "pytorch.embeddings.Embedding": 1,
        "pytorch.embeddings.embedding_backward": 2,
        "pytorch.embeddings.TokenAndPosition": 2,
    },
    "04": {
        "pytorch.attention.causal_mask": 2,
        "pytorch.attention.attention": 5,
        "pytorch.attention.split_heads": 2,
        "pytorch.attention.merge_heads": 2,
        "pytorch.attention.CausalSelfAttention": 4,
    },
    "05": {
        "pytorch.layers.LayerNorm": 4,
        "pytorch.layers.layer_norm_backward": 3,
        "pytorch.layers.gelu": 2,
        "pytorch.layers.MLP": 2,
    },
    "06": {
        "pytorch.gpt.Block": 3,
        "pytorch.gpt.init_weights": 2,
        "pytorch.gpt.GPT": 5,
    },
    "07": {
        "pytorch.training.cosine_lr": 2,
        "pytorch.training.AdamW": 5,
        "pytorch.training.clip_grad_norm": 2,
        "pytorch.training.accumulate": 2,
        "pytorch.training.save_checkpoint": 2,
        "pytorch.training.load_checkpoint": 2,
    },
    "08": {
        "pytorch.sampling.keep_top_k": 2,
        "pytorch.sampling.keep_top_p": 3,
        "pytorch.sampling.sample": 3,
        "pytorch.sampling.KVCache": 5,
    },
    "09": {
        "pytorch.pretrained.convert": 3,
        "pytorch.pretrained.config_of": 1,
        "pytorch.pretrained.load_gpt2": 3,
    },
    "10": {
        "mindspore.primitives.linear": 1,
        "mindspore.primitives.softmax": 1,
        "mindspore.primitives.log_softmax": 1,
        "mindspore.primitives.cross_entropy": 2,
        "mindspore.primitives.Linear": 1,
    },
    "11": {
        "mindspore.embeddings.Embedding": 1,
        "mindspore.embeddings.TokenAndPosition": 2,
    },
    "12": {
        "mindspore.attention.causal_mask": 1,
        "mindspore.attention.attention": 3,
        "mindspore.attention.split_heads": 1,
        "mindspore.attention.merge_heads": 1,
        "mindspore.attention.CausalSelfAttention": 3,
    },
    "13": {
        "mindspore.layers.gelu": 2,
        "mindspore.layers.MLP": 1,
    },
    "14": {
        "mindspore.layers.LayerNorm": 3,
    },
    "15": {
        "mindspore.gpt.Block": 2,
        "mindspore.gpt.init_weights": 1,
        "mindspore.gpt.GPT": 4,
    },
    "16": {
        "mindspore.training.AdamW": 4,
        "mindspore.training.clip_grad_norm": 1,
        "mindspore.training.accumulate": 2,
        "mindspore.sampling.sample": 2,
        "mindspore.sampling.KVCache": 3,
    },
    "17": {
        "pytorch.rope.rope_table": 2,
        "pytorch.rope.rotate": 2,
        "mindspore.rope.rotate": 1,
        "mindspore.fast.LayerNorm": 2,
        "mindspore.fast.CausalSelfAttention": 4,
        "mindspore.fast.Block": 2,
    },
    "18": {
        "pytorch.precision.attention_in": 3,
        "pytorch.precision.PrecisionGPT": 4,
        "pytorch.precision.LossScaler": 4,
        "mindspore.precision.attention_in": 2,
        "mindspore.precision.PrecisionGPT": 2,
        "mindspore.precision.LossScaler": 3,
    },
    "19": {
        "pytorch.layer_spec.build_module": 2,
        "pytorch.layer_spec.get_gpt_layer_local_spec": 3,
        "pytorch.stages.partition_layers": 2,
        "pytorch.stages.partition_by_cost": 3,
        "pytorch.stages.LocalSliceGPT": 4,
        "mindspore.stages.LocalSliceGPT": 3,
    },
    "20": {
        "pytorch.parallel.shard": 1,
        "pytorch.parallel.average_gradients": 3,
        "pytorch.parallel.accumulate": 2,
        "pytorch.parallel.gpipe_schedule": 3,
        "mindspore.parallel.average_gradients": 2,
    },
    "21": {
        "mindspore.ascend.to_layout": 1,
        "mindspore.ascend.from_layout": 1,
        "mindspore.ascend.flash_attention_arguments": 4,
        "mindspore.ascend.AutoPad": 2,
        "mindspore.static_cache.StaticKVCache": 4,
    },
    "22": {
        "mindspore.claims.api_exists": 2,
    },
}


@dataclass(frozen=True)
class Exercise:
    id: str
    lesson: str
    points: int

    @property
    def module(self):
        """The file of the answer below solutions/ and my_gpt/: "pytorch.attention"."""
        return self.id.rpartition(".")[0]

    @property
    def name(self):
        return self.id.rpartition(".")[2]


EXERCISES = {
    id: Exercise(id, lesson, points)
    for lesson, exercises in POINTS.items()
    for id, points in exercises.items()
}


class UnknownExercise(KeyError):
    def __str__(self):
        return self.args[0]


def find(exercise_id):
    """The Exercise of an id; UnknownExercise with the nearest id if there is none."""
    if exercise_id in EXERCISES:
        return EXERCISES[exercise_id]
    near = difflib.get_close_matches(str(exercise_id), EXERCISES, n=1)
    advice = f"Did you mean {near[0]}?" if near else "progress() lists them all."
    raise UnknownExercise(f"There is no exercise {exercise_id!r}. {advice}")
