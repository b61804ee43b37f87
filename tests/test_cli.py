"""python -m course, as a person uses it."""
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from course import train

TEXT = "the quick brown fox jumps over the lazy dog. " * 60
SMALL = ["--n-ctx", "8", "--n-layer", "1", "--n-head", "2", "--n-embd", "8", "--batch-size", "4", "--warmup", "2"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def course(*arguments, cwd, **options):
    environment = {**os.environ, "GPT_TWICE_WORK": str(cwd)}
    return subprocess.run([sys.executable, "-m", "course", *map(str, arguments)], capture_output=True, text=True, env=environment, cwd=cwd, **options)


def test_help(tmp_path):
    done = course("train", "--help", cwd=tmp_path)
    assert done.returncode == 0
    for option in ("--data", "--steps", "--resume", "--out", "--lr", "--every"):
        assert option in done.stdout


def test_train_then_sample(tmp_path, text):
    done = course("train", "--data", text, "--steps", 30, "--every", 10, *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "step 30/30" in done.stdout and "tokens/s" in done.stdout and "left" in done.stdout and "val" in done.stdout
    assert "Done: validation loss" in done.stdout
    first = course("sample", "--tokens", 20, "--prompt", "the ", cwd=tmp_path)
    again = course("sample", "--tokens", 20, "--prompt", "the ", cwd=tmp_path)
    assert first.stdout == again.stdout and first.stdout.startswith("the ") and len(first.stdout) == 25
    refused = course("sample", "--prompt", "Ω", cwd=tmp_path)
    assert refused.returncode == 1 and "'Ω' is not among the" in refused.stderr
    again = course("train", "--data", text, "--steps", 30, *SMALL, cwd=tmp_path)
    assert again.returncode == 1 and "holds a run already" in again.stderr


def test_resume_continues_as_if_never_interrupted(tmp_path, text):
    settings = train.Settings(data=str(text), steps=20, batch_size=4, n_ctx=8, n_layer=1, n_head=2, n_embd=8, warmup=2)
    straight = train.train(settings, tmp_path / "straight", every=5)
    run = train.Run(settings, tmp_path / "broken")
    for _ in range(7):
        run.step()
    run.save()
    resumed = train.train(settings, tmp_path / "broken", resume=True, every=5)
    for (name, a), (_, b) in zip(straight.model.state_dict().items(), resumed.model.state_dict().items()):
        assert torch.equal(a, b), name


def test_resume_refuses_other_settings(tmp_path, text):
    settings = train.Settings(data=str(text), steps=4, batch_size=4, n_ctx=8, n_layer=1, n_head=2, n_embd=8, warmup=2)
    train.train(settings, tmp_path / "run", every=2)
    other = train.Settings(**{**vars(settings), "n_embd": 16})
    with pytest.raises(train.TrainError, match="started with --n-embd 8, not 16"):
        train.train(other, tmp_path / "run", resume=True)
    with pytest.raises(train.TrainError, match="There is no run in"):
        train.train(settings, tmp_path / "nothing", resume=True)
    (tmp_path / "run/checkpoint.pt").write_bytes(b"no checkpoint")
    with pytest.raises(train.TrainError, match="is not a checkpoint of this model"):
        train.train(settings, tmp_path / "run", resume=True)
    (tmp_path / "run/settings.json").write_text("{")
    with pytest.raises(train.TrainError, match="is damaged"):
        train.train(settings, tmp_path / "run", resume=True)


def small(text, **others):
    return train.Settings(**{"data": str(text), "steps": 6, "batch_size": 4, "n_ctx": 8, "n_layer": 1, "n_head": 2, "n_embd": 8, "warmup": 2, **others})


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path, text, monkeypatch):
    folder = tmp_path / "run"
    write = train.Run.write

    def full_at_four(run, path):
        if run.it == 4:
            Path(f"{path}.tmp").write_bytes(b"half")
            raise RuntimeError("unexpected pos 64 vs 0")
        write(run, path)

    monkeypatch.setattr(train.Run, "write", full_at_four)
    with pytest.raises(train.TrainError, match=r"Step 4 cannot be saved in .*unexpected pos.* MB are free there\): the last checkpoint there is whole"):
        train.train(small(text), folder, every=2)
    assert sorted(p.name for p in folder.iterdir()) == ["checkpoint.pt", "settings.json"]
    monkeypatch.setattr(train.Run, "write", write)
    resumed = train.train(small(text), folder, resume=True, every=2)
    straight = train.train(small(text), tmp_path / "straight", every=2)
    assert all(torch.equal(a, b) for a, b in zip(resumed.params(), straight.params()))


def test_what_a_first_save_left_half_done_is_no_run(tmp_path, text):
    folder = tmp_path / "run"
    train.train(small(text), folder)
    for gone in ("checkpoint.pt", "settings.json"):
        (folder / gone).unlink()
        with pytest.raises(train.TrainError, match="There is no"):
            train.train(small(text), folder, resume=True)
        train.train(small(text), folder)                      # it starts anew


@pytest.mark.parametrize("kept", ['[]', 'null', '{"framework": "jax", "settings": {}, "vocab_size": 3}', '{"framework": "pytorch", "settings": {"data": "x", "foo": 3}, "vocab_size": 3}'])
def test_damaged_settings_get_one_sentence(tmp_path, text, kept):
    (tmp_path / "settings.json").write_text(kept)
    with pytest.raises(train.TrainError, match="settings.json is damaged"):
        train.open_run(tmp_path)
    with pytest.raises(train.TrainError, match="settings.json is damaged"):
        train.train(small(text), tmp_path, resume=True)


def test_a_run_knows_its_text(tmp_path, text, monkeypatch):
    folder = tmp_path / "run"
    train.train(small(text), folder)
    monkeypatch.chdir(tmp_path)
    assert train.train(small(text.name), folder, resume=True).it == 6   # another name of the same file
    text.write_text(TEXT.replace("quick", "kciuq"))
    for again in (lambda: train.open_run(folder), lambda: train.train(small(text), folder, resume=True)):
        with pytest.raises(train.TrainError, match="has been changed since"):
            again()
    text.unlink()
    with pytest.raises(train.TrainError, match="needs the text that it was trained on. There is no file"):
        train.open_run(folder)


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
@pytest.mark.parametrize("framework", ["pytorch", "mindspore"])
def test_an_interrupted_run_loses_nothing(tmp_path, text, framework):
    if framework == "mindspore":
        pytest.importorskip("mindspore")
    environment = {**os.environ, "GPT_TWICE_WORK": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "course", "train", "--data", str(text), "--steps", "100000", "--every", "20", *SMALL, "--framework", framework]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    while "step" not in process.stdout.readline():
        assert process.poll() is None
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Interrupted after step" in out and "--resume" in out, err
    if framework == "pytorch":
        it = torch.load(tmp_path / "train/checkpoint.pt", weights_only=True)["it"]
    else:
        with safe_open(tmp_path / "train/checkpoint.safetensors", "np") as file:
            it = file.metadata()["it"]
    assert f"Interrupted after step {it};" in out


@pytest.mark.parametrize("arguments, words", [
    (["train", "--data", "nowhere.txt"], "There is no file nowhere.txt"),
    (["train", "--data", "."], "is a folder"),
    (["train", "--n-head", "3"], "cannot be cut into"),
    (["train", "--steps", "0"], "--steps is 0 and must be at least 1"),
    (["train", "--lr", "-1"], "--lr is -1.0"),
    (["train", "--min-lr", "1"], "--min-lr is 1.0"),
    (["train", "--warmup", "-1"], "--warmup is -1"),
    (["train", "--every", "0"], "--every is 0"),
    (["train", "--sample", "-1"], "--sample is -1"),
    (["sample"], "There is no run in"),
    (["sample", "--top-k", "0"], "--top-k is 0"),
    (["sample", "--temperature", "-1"], "--temperature is -1.0"),
    (["sample", "--temperature", "nan"], "--temperature is nan"),
    (["sample", "--tokens", "0"], "--tokens is 0"),
    (["sample", "--prompt", ""], "--prompt is empty"),
    (["progress", "55"], "There is no lesson 55"),
])
def test_bad_input_gets_one_sentence(tmp_path, arguments, words):
    done = course(*arguments, cwd=tmp_path)
    assert done.returncode == 1 and words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("changed, words", [
    ({"clip": 0.0}, "--clip is 0.0"), ({"clip": math.nan}, "--clip is nan"), ({"weight_decay": -1.0}, "--weight-decay is -1.0"),
    ({"weight_decay": math.nan}, "--weight-decay is nan"), ({"seed": -1}, "--seed is -1"), ({"seed": 2**70}, "--seed is 11805"),
    ({"lr": math.nan}, "--lr is nan"), ({"min_lr": math.nan}, "--min-lr is nan"),
])
def test_bad_numbers_are_named(tmp_path, text, changed, words):
    with pytest.raises(train.TrainError, match=words):
        train.train(small(text, **changed), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_file_is_no_folder(tmp_path, text):
    with pytest.raises(train.TrainError, match="it is a file"):
        train.train(small(text), text)


def test_a_text_shorter_than_a_window(tmp_path):
    (tmp_path / "short.txt").write_text("abc " * 20)
    done = course("train", "--data", "short.txt", cwd=tmp_path)
    assert done.returncode == 1 and "take a text of at least 650 characters" in done.stderr
