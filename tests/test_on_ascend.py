"""The model of the fused attention, the cache of fixed shapes, and python -m course ascend. Nothing here needs an Ascend."""
import inspect
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F

os.environ.setdefault("GLOG_v", "4")
ms = pytest.importorskip("mindspore")

from course import ascend, flash, registry  # noqa: E402
from solutions.mindspore import ascend as answers  # noqa: E402
from solutions.mindspore.attention import causal_mask  # noqa: E402


def half(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def expected(q, k, v, **options):
    return F.scaled_dot_product_attention(*(torch.from_numpy(x.astype(np.float64)) for x in (q, k, v)), **options).numpy()


def call(q, k, v, **options):
    options.setdefault("input_layout", "BNSD")
    return flash.flash_attention_score(q, k, v, q.shape[1], scalar_value=q.shape[-1] ** -0.5, **options)


def test_the_model_has_the_arguments_and_defaults_of_the_operator():
    def of(function):
        return [(p.name, p.default) for p in inspect.signature(function).parameters.values()]

    assert of(flash.flash_attention_score) == of(ms.ops.flash_attention_score)


def test_what_the_model_says_stands_in_the_docstring():
    text = " ".join(ms.ops.flash_attention_score.__doc__.split())
    for words in ("multiple of 16, with the max value of 512", "1/True indicates discard", "must be :math:`(2048, 2048)`", "supported dtype is float16 and bfloat16", "Representing the rightDownCausal mode"):
        assert words in text, words


@pytest.mark.parametrize("T_q,T_k", [(1, 1), (5, 5), (3, 8), (1, 6)])
def test_mode_3_is_the_causal_mask_of_the_course(T_q, T_k):
    hidden = flash.discarded(T_q, T_k, flash.compressed(), 3)
    assert np.array_equal(hidden, ~causal_mask(T_q, T_k).asnumpy())
    upper_left = flash.discarded(T_q, T_k, flash.compressed(), 2)
    assert np.array_equal(upper_left, ~np.tril(np.ones((T_q, T_k), bool)))
    assert np.array_equal(hidden, upper_left) == (T_q == T_k)


@pytest.mark.parametrize("layout", flash.LAYOUTS)
@pytest.mark.parametrize("B,N,T_q,T_k,D", [(1, 1, 4, 4, 16), (2, 3, 3, 7, 32), (3, 2, 1, 5, 48), (2, 12, 33, 40, 64)])
def test_the_call_gives_attention(layout, B, N, T_q, T_k, D):
    q, k, v = half(B, N, T_q, D), half(B, N, T_k, D, seed=1), half(B, N, T_k, D, seed=2)
    arguments = answers.flash_attention_arguments(*map(ms.Tensor, (q, k, v)), layout=layout)
    got = answers.from_layout(flash.flash_attention_score(**arguments), layout, q.shape)
    assert got.dtype == ms.float16
    want = expected(q, k, v, attn_mask=torch.from_numpy(causal_mask(T_q, T_k).asnumpy()))
    assert np.abs(got.asnumpy() - want).max() < 2e-3


def test_key_heads_serve_groups_of_query_heads():
    q, k, v = half(2, 6, 4, 16), half(2, 2, 4, 16, seed=1), half(2, 2, 4, 16, seed=2)
    want = expected(q, k.repeat(3, axis=1), v.repeat(3, axis=1))
    assert np.abs(call(q, k, v) - want).max() < 2e-3


def test_band_of_mode_0():
    q, k, v = half(1, 1, 5, 16), half(1, 1, 5, 16, seed=1), half(1, 1, 5, 16, seed=2)
    i, j = np.mgrid[:5, :5]
    band = (j >= i - 2) & (j <= i)
    got = call(q, k, v, attn_mask=~band, sparse_mode=0, pre_tokens=2, next_tokens=0)
    assert np.abs(got - expected(q, k, v, attn_mask=torch.from_numpy(band))).max() < 2e-3
    free = call(q, k, v, sparse_mode=0, pre_tokens=0, next_tokens=0)      # without a mask the band is ignored
    assert np.abs(free - expected(q, k, v)).max() < 2e-3


def test_sequences_of_different_lengths_in_tnd():
    lengths = [(2, 3), (4, 4), (1, 6)]
    parts = [[half(2, t, 16, seed=10 * i + j) for j, t in enumerate((a, b, b))] for i, (a, b) in enumerate(lengths)]
    q, k, v = (np.concatenate([p[j].swapaxes(0, 1) for p in parts]) for j in range(3))
    got = flash.flash_attention_score(
        q, k, v, 2, attn_mask=flash.compressed(), sparse_mode=3, input_layout="TND", scalar_value=0.25, next_tokens=0,
        actual_seq_qlen=[2, 6, 7], actual_seq_kvlen=np.array([3, 7, 13]),
    )
    want = [expected(*p, attn_mask=torch.from_numpy(causal_mask(a, b).asnumpy())).swapaxes(0, 1) for p, (a, b) in zip(parts, lengths)]
    assert np.abs(got - np.concatenate(want)).max() < 2e-3


Q = half(2, 4, 3, 16)
UP = flash.compressed()
TND = {"input_layout": "TND", "attn_mask": UP, "sparse_mode": 3, "next_tokens": 0}
FLAT = half(6, 4, 16)
REFUSED = {
    "must be a multiple of 16": {"query": half(2, 4, 3, 20), "key": half(2, 4, 3, 20), "value": half(2, 4, 3, 20)},
    "at most 512": {"query": half(1, 1, 1, 528), "key": half(1, 1, 1, 528), "value": half(1, 1, 1, 528), "head_num": 1},
    "takes float16 and bfloat16": {"query": Q.astype(np.float32)},
    "must have one dtype": {"key": ms.Tensor(Q).astype(ms.bfloat16)},
    "must be a tensor": {"query": [1.0]},
    "attn_mask is float16": {"attn_mask": Q},
    "attn_mask is of type list": {"attn_mask": [[True]]},
    "must be one of": {"input_layout": "BHSD"},
    "query has 4 axes and BSH has 3": {"input_layout": "BSH"},
    "head_num is 3 and query has 4": {"head_num": 3},
    "head_num is 0": {"head_num": 0},
    "of type float and must be a Python int": {"head_num": 4.0},
    "must be a Python float": {"scalar_value": 1},
    "they must be equal": {"value": half(2, 4, 5, 16)},
    "those of key must divide": {"key": half(2, 3, 3, 16), "value": half(2, 3, 3, 16)},
    "query holds 2 sequences and key 1": {"key": half(1, 4, 3, 16), "value": half(1, 4, 3, 16)},
    "and key 32": {"key": half(2, 4, 3, 32), "value": half(2, 4, 3, 32)},
    "does not divide into 4 heads": {"query": half(2, 3, 66), "key": half(2, 3, 66), "value": half(2, 3, 66), "input_layout": "BSH"},
    "no multiple of head_dim": {"query": half(2, 3, 64), "key": half(2, 3, 40), "value": half(2, 3, 40), "input_layout": "BSH"},
    "belong to TND": {"actual_seq_qlen": [3, 6]},
    "must say where each ends": {"query": FLAT, "key": FLAT, "value": FLAT, **TND},
    "and the last must be 6": {"query": FLAT, "key": FLAT, "value": FLAT, **TND, "actual_seq_qlen": [3, 3], "actual_seq_kvlen": [3, 6]},
    "must be a list, a tuple or a tensor": {"query": FLAT, "key": FLAT, "value": FLAT, **TND, "actual_seq_qlen": 6, "actual_seq_kvlen": [6]},
    "must not fall": {"query": FLAT, "key": FLAT, "value": FLAT, **TND, "actual_seq_qlen": [7, 6], "actual_seq_kvlen": [3, 6]},
    "both must be equal": {"query": FLAT, "key": FLAT, "value": FLAT, **TND, "actual_seq_qlen": [6], "actual_seq_kvlen": [3, 6]},
    "has no keys": {"query": FLAT, "key": FLAT, "value": FLAT, **TND, "actual_seq_qlen": [3, 6], "actual_seq_kvlen": [0, 6]},
    "TND takes sparse_mode 2 or 3": {"query": FLAT, "key": FLAT, "value": FLAT, **TND, "sparse_mode": 0, "actual_seq_qlen": [6], "actual_seq_kvlen": [6]},
    "TND wants next_tokens=0": {"query": FLAT, "key": FLAT, "value": FLAT, **TND, "next_tokens": 5, "actual_seq_qlen": [6], "actual_seq_kvlen": [6]},
    "wants at least as many keys": {"query": FLAT, "key": FLAT[:2], "value": FLAT[:2], **TND, "actual_seq_qlen": [6], "actual_seq_kvlen": [2]},
    "not implemented in the operator": {"sparse_mode": 7},
    "not in this model": {"sparse_mode": 4},
    "is no mode": {"sparse_mode": 9},
    "attn_mask is None: CANN documents": {"sparse_mode": 3},
    "sparse_mode 1 takes the whole mask": {"sparse_mode": 1},
    "takes (2048, 2048) for every length": {"sparse_mode": 2, "attn_mask": ~causal_mask(3, 3).asnumpy()},
    "the other way round": {"sparse_mode": 3, "attn_mask": ~UP},
    "it is another one": {"sparse_mode": 3, "attn_mask": np.zeros((2048, 2048), np.uint8)},
    "takes (B, N1, S1, S2)": {"sparse_mode": 1, "attn_mask": np.zeros((1, 1, 3, 3), bool)},
    "leave an empty band": {"attn_mask": np.zeros((3, 3), bool), "pre_tokens": -1, "next_tokens": 0},
    "may attend to no key": {"sparse_mode": 1, "attn_mask": np.ones((3, 3), bool)},
    "real_shift is given": {"real_shift": Q},
    "no dropout": {"keep_prob": 0.9},
}


@pytest.mark.parametrize("says", REFUSED)
def test_refused_in_a_sentence(says):
    arguments = {"query": Q, "key": Q, "value": Q, "head_num": 4, "scalar_value": 0.25, "input_layout": "BNSD", **REFUSED[says]}
    with pytest.raises((flash.Refused, flash.RefusedType)) as error:
        flash.flash_attention_score(**arguments)
    assert says in str(error.value), error.value
    assert str(error.value).endswith((".", "elsewhere", "one")) and "\n" not in str(error.value)


def test_autopad_around_the_model():
    q, k, v = half(2, 3, 4, 20), half(2, 3, 6, 20, seed=1), half(2, 3, 6, 20, seed=2)

    def attend(q, k, v, mask, scale):
        return flash.run(**answers.flash_attention_arguments(q, k, v, mask, "BNSD", scale))

    got = answers.AutoPad(attend)(*map(ms.Tensor, (q, k, v)), "causal").asnumpy()
    want = expected(q, k, v, attn_mask=torch.from_numpy(causal_mask(4, 6).asnumpy()))
    assert got.shape == q.shape and np.abs(got - want).max() < 2e-3


# --- python -m course ascend ---------------------------------------------------------------------------


def course(*arguments, cwd):
    return subprocess.run([sys.executable, "-m", "course", "ascend", *arguments], capture_output=True, text=True, cwd=cwd, env={**os.environ, "GPT_TWICE_WORK": str(cwd)})


def test_help(tmp_path):
    done = course("--help", cwd=tmp_path)
    assert done.returncode == 0
    for option in ("--lessons", "--parts", "--out", "--fresh"):
        assert option in done.stdout


def test_report_without_an_ascend(tmp_path):
    done = course("--parts", "versions,device,pairing,flash attention", "--lessons", "none", "--out", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[1/4] versions ..." in done.stdout and "[4/4] flash attention ..." in done.stdout
    text = (tmp_path / "r" / "report.md").read_text()
    assert f"ops.flash_attention_score: {ascend.NOT_RUN}" in text and "MindSpore 2.10.0 belongs with CANN 9.1.0" in text
    assert text.count("largest difference from attention in float64") == 20
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r"]


def test_unknown_lesson_or_part(tmp_path):
    for option, value in (("--lessons", "99"), ("--parts", "flush")):
        done = course(option, value, "--out", "r", cwd=tmp_path)
        assert done.returncode == 1 and "There is no" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "r").exists()


def test_a_run_goes_on_where_it_was_stopped(tmp_path, monkeypatch):
    ran, said = [], []

    def part(name, ok=True):
        def run():
            ran.append(name)
            if name == "b" and len(ran) == 2:
                raise KeyboardInterrupt
            return ok, [f"line of {name}"]

        return run, name

    monkeypatch.setattr(ascend, "PARTS", {"a": part("a"), "b": part("b"), "c": part("c", False), "d": part("d", None)})
    monkeypatch.setattr(ascend, "lesson", lambda number: (ran.append(number), (True, ["3 passed"]))[1])
    with pytest.raises(KeyboardInterrupt):
        ascend.run(tmp_path, ["04"], say=said.append)
    assert "## b: not run yet" in (tmp_path / "report.md").read_text()
    assert ascend.run(tmp_path, ["04"], say=said.append) is False
    assert ran == ["a", "b", "b", "c", "d", "04"]
    text = (tmp_path / "report.md").read_text()
    assert "## c: FAILED" in text and "## d: not run, or in part" in text and "3 passed" in text
    ascend.run(tmp_path, ["04"], fresh=True, say=said.append)
    assert len(ran) == 11
    del ran[:]
    assert ascend.run(tmp_path, ["4"], say=said.append) is False          # what went well is kept, the rest is tried again
    assert ran == ["c", "d"]
    for damaged in ("{", "[]", '{"done": []}', '{"done": {"a": 1}}'):
        (tmp_path / "state.json").write_text(damaged)
        with pytest.raises(ValueError, match="--fresh"):
            ascend.run(tmp_path, [], say=said.append)


def test_a_part_that_raises_is_told_and_the_others_run(tmp_path, monkeypatch):
    def broken():
        raise RuntimeError("-----\n- no such device\n")

    monkeypatch.setattr(ascend, "PARTS", {"a": (broken, "a"), "b": (lambda: (True, []), "b")})
    assert ascend.run(tmp_path, [], say=lambda line: None) is False
    state = json.loads((tmp_path / "state.json").read_text())
    assert state["done"]["a"]["lines"] == ["RuntimeError: - no such device"] and state["done"]["b"]["ok"]


def test_a_lesson_runs_under_nbval():
    ok, lines = ascend.lesson("03")
    assert ok, lines
    assert "passed" in lines[0]


def test_table_of_pairs():
    assert ("2.0.0", "2.10.0", "9.1.0", "26.1.0") in ascend.PAIRS
    assert all(row[2].rpartition(".")[0] for row in ascend.PAIRS)
    assert "9.1" in ascend.accepted_cann()


def test_cann_is_read_where_mindspore_reads_it(tmp_path, monkeypatch):
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    assert ascend.cann_version() is None
    (tmp_path / "compiler").mkdir()
    (tmp_path / "compiler" / "version.info").write_text("Version=9.1.0\nversion_dir=9.1\n")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    assert ascend.cann_version() == "9.1.0"
    assert ascend.pairing()[0] is True
    (tmp_path / "compiler" / "version.info").write_text("Version=6.3.RC2\n")
    ok, lines = ascend.pairing()
    assert ok is False and "NOT accepted" in lines[-1]


def test_lesson_is_listed():
    assert registry.LESSONS["21"] == "on_ascend"
