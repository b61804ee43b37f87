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
