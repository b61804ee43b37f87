"""The benchmark of the layer: every way of running and writing computes the same, bad arguments get a sentence, and nothing measured is lost."""
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from course.bench import layer


def bench(*arguments, cwd, **options):
    environment = {**os.environ, "GPT_TWICE_WORK": str(cwd)}
    return subprocess.run([sys.executable, "-m", "course", "bench", "layer", *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=cwd, **options)


def gap(mine, right):
    return max(float(np.abs(mine[name] - right[name]).max() / np.abs(right[name]).max()) for name in right)


@pytest.fixture(scope="module")
def right():
    """Values and gradients of the course's own pieces in PyTorch."""
    return {(which, p): layer.PyTorch(job("pytorch", which, p)).values() for which in layer.PIECES for p in layer.PASSES}


def job(mode, which="layer", passes="both", run=None):
    return {"mode": mode, "size": "tiny", "piece": which, "passes": passes, "seconds": 0, "run": run, "profile": False}


@pytest.mark.parametrize("which", layer.PIECES)
def test_every_piece_is_equal_eagerly(right, which):
    import mindspore as ms

    ms.runtime.launch_blocking()
    for passes in layer.PASSES:
        for mode in ("eager", "fast"):
            if layer.can_measure(mode, which):
                mine = layer.MindSpore(job(mode, which, passes, run="eager")).values()
                assert mine.keys() == right[which, passes].keys()
                assert gap(mine, right[which, passes]) < 1e-5, (which, passes, mode)


@pytest.mark.parametrize("name", [name for name in layer.GROUPS["forms"] if name != "form-gelu-tanh"])
def test_every_form_is_equal(right, name):
    mine = layer.MindSpore(job(name, run="eager")).values()
    assert mine.keys() == right["layer", "both"].keys()
    assert gap(mine, right["layer", "both"]) < 1e-5


def test_gelu_with_tanh_is_less_exact_and_no_other_function(right):
    assert gap(layer.MindSpore(job("form-gelu-tanh", run="eager")).values(), right["layer", "both"]) < 1e-3


def test_rope_is_equal_in_both_frameworks_and_both_ways():
    want = layer.PyTorch(job("pytorch-rope-table")).values()
    assert gap(layer.PyTorch(job("pytorch-rope-computed")).values(), want) < 1e-6
    for name in ("rope-table", "rope-computed"):
        assert gap(layer.MindSpore(job(name, run="eager")).values(), want) < 1e-4
    plain = layer.PyTorch(job("pytorch")).values()
    assert gap(want, plain) > 1e-2                            # it does turn


def test_the_stock_layer_is_equal(right):
    assert gap(layer.PyTorch(job("pytorch-stock")).values(), right["layer", "both"]) < 1e-5


def test_the_table_of_solutions_is_the_same_in_both_frameworks():
    from solutions.mindspore import rope as mine
    from solutions.pytorch import rope as theirs

    for a, b in zip(mine.rope_table(50, 10, 500.0), theirs.rope_table(50, 10, 500.0)):
        assert np.abs(a.asnumpy() - b.numpy()).max() < 1e-6
    with pytest.raises(ValueError, match="head_dim is 5"):
        mine.rope_table(3, 5)


def test_flops_are_counted_by_hand():
    assert layer.flops("layer", "forward", "gpt2") == 24 * 512 * 768**2 + 4 * 512 * 256 * 768
    assert layer.flops("layer", "both", "gpt2") == 3 * layer.flops("layer", "forward", "gpt2")
    assert layer.flops("attention", "both", "small") + layer.flops("mlp", "both", "small") == layer.flops("layer", "both", "small")
    assert layer.flops("embedding", "both", "gpt2") == 0


def measured(mode, seconds, **more):
    return layer.Measured(mode, "layer", "both", [seconds] * 5, peak=1e9, banner="here", **more)


def test_the_waterfall_adds_up_and_multiplies_to_the_whole():
    rows = [measured("pytorch", 1.0), measured("eager", 10.0), measured("graph", 4.0), measured("fusion", 3.0), measured("+norm", 3.5), measured("+asleep", 1.5)]
    rows[3].error = "no compiler"                             # its change then belongs to the next
    changes = layer.waterfall(rows)
    assert [mode for _, mode, _, _ in changes] == ["graph", "+norm", "+asleep"]
    assert "5 changes" in changes[1][0]
    assert sum(before - after for *_, before, after in changes) == pytest.approx(10.0 - 1.5)
    assert np.prod([before / after for *_, before, after in changes]) == pytest.approx(10.0 / 1.5)
    text = layer.report(rows, "tiny")
    assert "fusion   failed: no compiler" in text and "the whole" in text and "6.67" in text
    assert layer.waterfall(rows[:2]) == []


def test_a_wrong_candidate_is_named_and_no_part_of_the_waterfall():
    rows = [measured("eager", 10.0), measured("graph", 4.0, output_gap=1e-6, gradient_gap=0.8), measured("fusion", 3.0, output_gap=3e-5, gradient_gap=5e-5)]
    text = layer.report(rows, "tiny")
    assert "1e-06, 8e-01  WRONG" in text and text.count("WRONG") == 1
    assert [mode for _, mode, _, _ in layer.waterfall(rows)] == ["fusion"]


def test_a_report_without_any_success():
    rows = [layer.Measured("graph", "layer", "both", error="broken")]
    assert "graph  failed: broken" in layer.report(rows, "tiny")
    with pytest.raises(ValueError, match="nothing to draw"):
        layer.draw(rows, "tiny")


@pytest.mark.parametrize("arguments, words", [
    ({"size": "huge"}, "size is 'huge' and must be one of tiny, small, mid, gpt2"),
    ({"names": ["grahp"]}, "no mode 'grahp'. Did you mean graph"),
    ({"names": ["zzz"]}, "--help lists every mode"),
    ({"pieces": ["head"]}, "piece is 'head'"),
    ({"passes": ["backward"]}, "pass is 'backward'"),
    ({"run": "fast"}, "run is 'fast'"),
    ({"seconds": 0}, "seconds is 0 and must be above 0"),
    ({"seconds": float("nan")}, "must be above 0"),
    ({"names": ["forms"], "pieces": ["mlp"]}, "whole layers"),
    ({"names": []}, "None of the modes"),
    ({"passes": []}, "None of the passes is given"),
])
def test_bad_arguments(arguments, words):
    with pytest.raises(ValueError) as raised:
        layer.measure(**{"size": "tiny", "names": ["pytorch"], **arguments})
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_a_candidate_that_fails_or_hangs_is_not_the_end(monkeypatch):
    monkeypatch.setitem(layer.MODES, "broken", layer.Mode("broken", "pytorch"))      # which the child process does not know
    lines, found = [], []
    layer.measure("tiny", ["broken", "pytorch"], seconds=0.1, progress=lines.append, found=found)
    assert "KeyError" in found[0].error and "\n" not in found[0].error
    assert not found[1].error and found[1].output_gap == 0
    assert lines[0].startswith("[1/2] layer, both: broken") and "failed" in lines[1]
    hung, = layer.measure("tiny", ["pytorch"], seconds=30, limit=0.2)
    assert hung.error == "not done after 0.2 s"


def test_a_child_without_figures_is_a_line_in_the_table(monkeypatch, tmp_path):
    monkeypatch.setattr(layer.sys, "executable", "true")      # ends well and says nothing
    assert layer.in_own_process(job("pytorch"), tmp_path, 10).error == "the process ended without figures"


def test_the_figure_is_of_the_first_piece_that_was_measured():
    failed = layer.Measured("graph", "attention", "both", error="broken")
    assert layer.draw([failed, measured("pytorch", 1.0)], "tiny").axes[0].get_title().startswith("layer")


def test_what_is_written_is_strict_json():
    row = layer.written(measured("pytorch", 1.0), "tiny")
    assert json.loads(json.dumps(row, allow_nan=False))["output_gap"] is None


@pytest.mark.parametrize("change, words", [
    ({"mask": "bool"}, "mask is 'bool' and must be one of boolean, additive"),
    ({"masks": "boolean"}, "the part to change is 'masks'"),
    ({"cells": "one", "qkv": "three"}, "the block as one Cell"),
])
def test_a_form_that_does_not_exist_gets_a_sentence(change, words):
    with pytest.raises(ValueError) as raised:
        layer.in_this_process("tiny", change)
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_the_command(tmp_path):
    done = bench("--size", "tiny", "--modes", "pytorch,graph", "--seconds", 0.1, "--profile", "--json", "a.json", "--plot", "a.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "[2/2] layer, both: graph" in done.stderr and "operators of ten calls" in done.stdout and "MatMul" in done.stdout
    written = json.loads((tmp_path / "a.json").read_text())
    assert [m["mode"] for m in written["measured"]] == ["pytorch", "graph"]
    graph = written["measured"][1]
    assert graph["output_gap"] < 1e-5 and graph["gradient_gap"] < 1e-5 and graph["memory"] > 0 and graph["peak"] > 0
    assert (tmp_path / "a.png").stat().st_size > 5000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "a.png"]           # nothing of the compiler's


@pytest.mark.parametrize("arguments, words", [
    (["--modes", "grph"], "Did you mean graph?"),
    (["--pieces", "heads"], "piece is 'heads'"),
    (["--json", "nowhere/a.json"], "there is no folder"),
    (["--json", "."], "it is a folder"),
    (["--modes", ","], "None of the modes is given"),
    (["--pieces", ""], "None of the pieces is given"),
    (["--plot", "a.txt"], "must end in .png"),
    (["--seconds", "-1"], "must be above 0"),
])
def test_the_command_refuses(tmp_path, arguments, words):
    options = layer_options(arguments)
    with pytest.raises(ValueError, match=words.replace("?", r"\?").replace(".", r"\.")):
        layer.shell(options)


def layer_options(arguments):
    from course.__main__ import parser

    return parser().parse_args(["bench", "layer", "--size", "tiny", *arguments])


def test_help_lists_every_mode(capsys):
    from course.__main__ import parser

    with pytest.raises(SystemExit):
        parser().parse_args(["bench", "--help"])
    text = capsys.readouterr().out
    assert all(name in text for name in (*layer.MODES, *layer.GROUPS))


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
def test_an_interrupt_keeps_what_was_measured(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "course", "bench", "layer", "--size", "tiny", "--modes", "pytorch,pytorch-stock", "--seconds", "0.1", "--json", "a.json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )
    while "[2/2]" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "interrupted" in err
    assert "pytorch" in out and "pytorch-stock" not in out
    assert len(json.loads((tmp_path / "a.json").read_text())["measured"]) == 1
