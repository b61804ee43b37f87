"""The course's GPT beside the same model from stock parts: step time, training, cached sampling."""
import multiprocessing
import statistics
import time

from course import corpus, device, timing
from course.exercise import reference

SMALL = {"n_ctx": 64, "n_layer": 4, "n_head": 4, "n_embd": 128}
MID = {"n_ctx": 128, "n_layer": 6, "n_head": 6, "n_embd": 384}
BATCH = {"small": 12, "mid": 8}
VOCAB_SIZE = 81


def config(vocab_size=VOCAB_SIZE, **sizes):
    from solutions.pytorch.gpt import GPTConfig

    return GPTConfig(vocab_size=vocab_size, **sizes)


def models(sizes):
    """The two models with the same weights, and their optimizers: {name: (model, optimizer)}."""
    import torch

    from course.bench.stock import StockGPT, stock_optimizer

    torch.manual_seed(1337)
    ours = reference("pytorch.gpt.GPT")(config(**sizes))
    stock = StockGPT(config(**sizes))
    stock.load_state_dict(ours.state_dict())
    AdamW = reference("pytorch.training.AdamW")
    return {
        "course": (ours, AdamW(ours.parameters(), lr=1e-3, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1)),
        "stock": (stock, stock_optimizer(stock)),
    }


def step_times(size, keep_memory):
    """Median seconds of a training step of each model, in turn in one process: {name: seconds}."""
    import torch

    if keep_memory:
        device.keep_freed_memory()
    sizes = {"small": SMALL, "mid": MID}[size]
    x, y = torch.randint(VOCAB_SIZE, (2, BATCH[size], sizes["n_ctx"]))

    def step(model, optimizer):
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    candidates = {name: lambda pair=pair: step(*pair) for name, pair in models(sizes).items()}
    timings = timing.measure(candidates, seconds=15, least=10, most=100)
    return {name: t.median for name, t in timings.items()}


def train_one(name, steps):
    """Validation loss and tokens a second of one model after training on the plays."""
    import numpy as np
    import torch

    device.keep_freed_memory()
    get_batch = reference("pytorch.tokens.get_batch")
    cosine_lr = reference("pytorch.training.cosine_lr")
    clip = reference("pytorch.training.clip_grad_norm") if name == "course" else torch.nn.utils.clip_grad_norm_
    text = corpus.load("shakespeare")
    tokens = np.array(reference("pytorch.tokens.CharTokenizer")(text).encode(text), dtype=np.uint16)
    train, val = corpus.split(tokens)
    model, optimizer = models(SMALL)[name]
    torch.manual_seed(1)
    started = time.perf_counter()
    for it in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = cosine_lr(it, 1e-3, 1e-4, 100, steps)
        x, y = get_batch(train, 12, 64)
        _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        clip(list(model.parameters()), 1.0)
        optimizer.step()
        if (it + 1) % 200 == 0:
            print(f"  {name}: step {it + 1} of {steps}, loss {loss.item():.3f}", flush=True)
    speed = steps * x.numel() / (time.perf_counter() - started)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        losses = [model(*get_batch(val, 12, 64, generator))[1].item() for _ in range(200)]
    return {"validation loss": statistics.mean(losses), "tokens/s": speed}


def sampling():
    """Seconds for 200 tokens with and without the cache, and the largest difference of their logits."""
    import torch

    torch.manual_seed(0)
    model = reference("pytorch.gpt.GPT")(config(**{**MID, "n_ctx": 256}))
    sample, KVCache = reference("pytorch.sampling.sample"), reference("pytorch.sampling.KVCache")
    prompt = torch.zeros(1, 1, dtype=torch.long)
    found = {}
    for name, cache in {"uncached": None, "cached": KVCache(model)}.items():
        started = time.perf_counter()
        idx = sample(model, prompt, 200, temperature=0, cache=cache)
        found[name] = time.perf_counter() - started
    cache = KVCache(model)
    with torch.no_grad():
        stepwise = torch.cat([cache.forward(idx[:, i : i + 1]) for i in range(idx.shape[1])], dim=1)
        found["largest difference of logits"] = (stepwise - model(idx)[0]).abs().max().item()
    return found


def in_own_process(function, *arguments):
    """The result of function(*arguments) from a fresh process: no candidate warms up another's caches."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def report(what="all", steps=2000):
    """Print the figures of "step", "train", "sample" or "all" and return them by name."""
    import torch  # noqa: F401  (the banner names the frameworks that are imported)

    print(device.banner())
    figures = {}
    if what in ("all", "step"):
        for size in ("small", "mid"):
            for keep_memory in (False, True):
                times = in_own_process(step_times, size, keep_memory)
                how = "freed memory kept" if keep_memory else "default malloc"
                figures[f"step {size}, {how}"] = times
                print(
                    f"training step, {size}, {how:17}  course {1e3 * times['course']:7.1f} ms  stock {1e3 * times['stock']:7.1f} ms  "
                    f"ratio {times['course'] / times['stock']:.2f}", flush=True,
                )
    if what in ("all", "train"):
        for name in ("course", "stock"):
            figures[f"train {name}"] = in_own_process(train_one, name, steps)
        for name in ("course", "stock"):
            trained = figures[f"train {name}"]
            print(f"{steps} steps on the plays, {name:6}  validation loss {trained['validation loss']:.3f}  {trained['tokens/s']:,.0f} tokens/s", flush=True)
    if what in ("all", "sample"):
        found = figures["sample"] = in_own_process(sampling)
        print(
            f"200 tokens  uncached {found['uncached']:.2f} s  cached {found['cached']:.2f} s  ratio {found['uncached'] / found['cached']:.1f}  "
            f"largest difference of logits {found['largest difference of logits']:.1g}"
        )
    return figures
