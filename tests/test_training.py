"""Lesson 07 beside PyTorch's optimizer, the full batch and an uninterrupted run."""
import copy

import pytest
import torch

from solutions.pytorch.gpt import GPT, GPTConfig
from solutions.pytorch.training import AdamW, accumulate, clip_grad_norm, cosine_lr, load_checkpoint, save_checkpoint

CONFIG = GPTConfig(vocab_size=11, n_ctx=8, n_layer=2, n_head=2, n_embd=16)


def model_of(seed=0, dtype=torch.float32):
    torch.manual_seed(seed)
    return GPT(CONFIG).to(dtype)


def batch(B=6, T=8, generator=None):
    windows = torch.randint(11, (B, T + 1), generator=generator)
    return windows[:, :-1], windows[:, 1:]


def two_groups(model, lr):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0, "lr": lr / 2}]


def test_adamw_is_torchs_over_100_steps():
    """The same gradients for both, so that rounding is not blown up by a model's feedback."""
    mine = model_of()
    theirs = copy.deepcopy(mine)
    settings = {"lr": 3e-3, "betas": (0.9, 0.99), "eps": 1e-8}
    own, oracle = AdamW(two_groups(mine, 3e-3), **settings), torch.optim.AdamW(two_groups(theirs, 3e-3), **settings)
    generator = torch.Generator().manual_seed(1)
    for it in range(100):
        for group, other in zip(own.param_groups, oracle.param_groups):
            group["lr"] = other["lr"] = cosine_lr(it, 3e-3, 3e-4, 10, 100)
        own.zero_grad()
        mine(*batch(generator=generator))[1].backward()
        for p, q in zip(mine.parameters(), theirs.parameters()):
            q.grad = p.grad.clone()
        own.step()
        oracle.step()
    for (name, p), q in zip(mine.named_parameters(), theirs.parameters()):
        assert (p - q).abs().max() < 1e-6, name


def test_adamw_takes_a_flat_list_as_two_groups():
    model = model_of()
    optimizer = AdamW(model.parameters(), weight_decay=0.3)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0]
    assert all((p.dim() >= 2) == (group["weight_decay"] > 0) for group in optimizer.param_groups for p in group["params"])
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))


def test_state_is_loaded_to_the_device_and_dtype_of_the_parameter():
    p = torch.nn.Parameter(torch.ones(2, 3))
    p.grad = torch.ones(2, 3)
    one = AdamW([p])
    one.step()
    q = torch.nn.Parameter(torch.ones(2, 3, dtype=torch.float64))
    other = AdamW([q])
    other.load_state_dict(one.state_dict())
    assert other.state[q]["m"].dtype == torch.float64
    other.state[q]["m"].zero_()
    assert one.state[p]["m"].abs().min() > 0                  # loaded by value: the other's m is untouched


@pytest.mark.parametrize("max_norm", [1e-3, 0.5, 1e3])
def test_clipping_is_torchs(max_norm):
    mine = model_of()
    mine(*batch())[1].backward()
    theirs = copy.deepcopy(mine)
    for p, q in zip(mine.parameters(), theirs.parameters()):
        q.grad = p.grad.clone()
    norm = clip_grad_norm(mine.parameters(), max_norm)
    assert torch.allclose(norm, torch.nn.utils.clip_grad_norm_(theirs.parameters(), max_norm), rtol=1e-5)
    for p, q in zip(mine.parameters(), theirs.parameters()):
        assert torch.allclose(p.grad, q.grad, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_accumulation_is_the_big_batch(n):
    model = model_of(dtype=torch.float64)
    x, y = batch()
    loss = model(x, y)[1]
    loss.backward()
    whole = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    mean = accumulate(model, list(zip(x.chunk(n), y.chunk(n))))
    assert abs(mean - loss.item()) < 1e-12
    for p, g in zip(model.parameters(), whole):
        assert torch.allclose(p.grad, g, rtol=0, atol=1e-12)


def steps(model, optimizer, first, last):
    losses = []
    for it in range(first, last):
        for group in optimizer.param_groups:
            group["lr"] = cosine_lr(it, 1e-2, 1e-3, 3, 10)
        x, y = batch()                                        # from the global random numbers
        optimizer.zero_grad()
        losses.append(accumulate(model, list(zip(x.chunk(2), y.chunk(2)))))
        clip_grad_norm(model.parameters(), 1.0)
        optimizer.step()
    return losses


def test_a_resumed_run_is_the_same_bit_for_bit(tmp_path):
    torch.manual_seed(5)
    model = GPT(CONFIG)
    optimizer = AdamW(model.parameters(), weight_decay=0.1)
    straight = steps(model, optimizer, 0, 10)

    torch.manual_seed(5)
    first = GPT(CONFIG)
    optimizer = AdamW(first.parameters(), weight_decay=0.1)
    losses = steps(first, optimizer, 0, 5)
    save_checkpoint(tmp_path / "run.pt", first, optimizer, 5)

    torch.manual_seed(77)
    second = GPT(CONFIG)
    optimizer = AdamW(second.parameters(), lr=0.5)
    it = load_checkpoint(str(tmp_path / "run.pt"), second, optimizer)
    assert it == 5
    assert losses + steps(second, optimizer, it, 10) == straight
    for p, q in zip(model.parameters(), second.parameters()):
        assert torch.equal(p, q)


@pytest.mark.parametrize("moment", ["while it writes", "before it replaces"])
def test_an_interrupted_save_leaves_the_old_checkpoint(tmp_path, monkeypatch, moment):
    path = tmp_path / "run.pt"
    model = model_of()
    optimizer = AdamW(model.parameters())
    steps(model, optimizer, 0, 2)
    save_checkpoint(path, model, optimizer, 2)
    before = path.read_bytes()
    kept = copy.deepcopy(model)
    steps(model, optimizer, 2, 3)

    def half_a_file(state, where):
        with open(where, "wb") as file:
            file.write(before[: len(before) // 2])
        raise OSError("No space left on device")

    def stopped(*names):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if moment == "while it writes":
            patch.setattr(torch, "save", half_a_file)
        else:
            patch.setattr("os.replace", stopped)
        with pytest.raises((OSError, KeyboardInterrupt)):
            save_checkpoint(path, model, optimizer, 3)

    assert path.read_bytes() == before
    assert load_checkpoint(path, model, optimizer) == 2
    for p, q in zip(model.parameters(), kept.parameters()):
        assert torch.equal(p, q)
    save_checkpoint(path, model, optimizer, 3)                # what the interrupted one left does not disturb the next
    assert load_checkpoint(path, model, optimizer) == 3
