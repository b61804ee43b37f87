"""python -m course: train, sample, bench, progress."""
import argparse
import json
import sys
from dataclasses import fields
from pathlib import Path

from course import answers, corpus, train
from course.progress import progress


def parser():
    top = argparse.ArgumentParser(prog="python -m course", description="GPT, twice: longer runs from the shell.")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")

    command = commands.add_parser("train", help="train a character GPT, with checkpoints", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    words = {
        "data": "shakespeare, tinyshakespeare, or the path of a UTF-8 text file",
        "steps": "updates in all", "batch_size": "windows in a batch", "n_ctx": "positions in a window",
        "n_layer": "blocks", "n_head": "heads in a block", "n_embd": "channels",
        "lr": "highest learning rate", "min_lr": "learning rate at the end", "warmup": "steps of rising learning rate",
        "weight_decay": "decay of matrices", "clip": "largest gradient norm", "seed": "of weights and batches",
    }
    for field in fields(train.Settings):
        command.add_argument(f"--{field.name.replace('_', '-')}", type=field.type, default=field.default, help=words[field.name])
    command.add_argument("--framework", choices=["pytorch", "mindspore"], default="pytorch", help="which half of the course trains")
    command.add_argument("--out", default=None, help="folder of the checkpoint (default: train/ in your work folder)")
    command.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    command.add_argument("--every", type=int, default=100, help="steps between checkpoints and validations")
    command.add_argument("--sample", type=int, default=300, help="characters to sample at the end")

    command = commands.add_parser("sample", help="text from a trained model", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    command.add_argument("--out", default=None, help="folder of the checkpoint (default: train/ in your work folder)")
    command.add_argument("--prompt", help="text to go on from; without it the model starts by itself")
    command.add_argument("--tokens", type=int, default=300, help="characters to add")
    command.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest each time")
    command.add_argument("--top-k", type=int, default=40, help="draw among this many")
    command.add_argument("--seed", type=int, default=0, help="of the draws")

    command = commands.add_parser("bench", help="the course's GPT beside one from stock parts, and its port to MindSpore")
    command.add_argument("what", nargs="?", choices=["all", "step", "train", "sample", "port"], default="all", help="which figures (default all, about 15 minutes)")
    command.add_argument("--steps", type=int, default=2000, help="training steps of the train figures (default 2000)")
    command.add_argument("--json", metavar="FILE", help="also write the figures to this file")

    command = commands.add_parser("progress", help="what is passed and what is open")
    command.add_argument("lesson", nargs="?", help="one lesson, for example 04")
    return top


def run(options):
    if options.command == "train":
        settings = train.Settings(**{f.name: getattr(options, f.name) for f in fields(train.Settings)})
        if options.every < 1:
            raise train.TrainError(f"--every is {options.every} and must be at least 1.")
        done = train.train(settings, options.out or answers.folder() / "train", options.resume, options.every, framework=options.framework)
        if done is None:
            return 130
        if options.sample > 0:
            print(done.sample(tokens=options.sample))
    elif options.command == "sample":
        if options.temperature < 0:
            raise train.TrainError(f"--temperature is {options.temperature} and cannot be negative.")
        if options.top_k < 1:
            raise train.TrainError(f"--top-k is {options.top_k} and must be at least 1.")
        if options.prompt == "":
            raise train.TrainError("--prompt is empty: the model needs at least one character to go on from.")
        opened = train.open_run(options.out or answers.folder() / "train")
        try:
            print(opened.sample(options.prompt, options.tokens, options.temperature, options.top_k, options.seed))
        except ValueError as error:
            raise train.TrainError(f"The prompt does not fit this model: {error}.") from None
    elif options.command == "bench":
        from course.bench import pytorch as bench

        figures = bench.report(options.what, options.steps)
        if options.what in ("all", "port"):
            from course.bench import training

            for size in ("small", "mid"):
                measured = training.measure(size)
                print(f"training step, {size}, one process each\n{training.report(measured)}", flush=True)
                figures[f"port {size}"] = {name: vars(m) for name, m in measured.items()}
        if options.json:
            Path(options.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")
    else:
        progress(options.lesson)
    return 0


def main():
    try:
        sys.exit(run(parser().parse_args()))
    except (train.TrainError, corpus.CorpusError, ImportError, ValueError) as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"{error.filename or 'A file'} cannot be used: {error.strerror}.")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
