"""python -m course: train, sample, bench, progress, claims, verify; for teachers release and grade."""
import argparse
import json
import sys
from dataclasses import asdict, fields
from pathlib import Path

from course import answers, corpus, train
from course.bench import layer
from course.parallel import launch
from course.progress import progress


class Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Says the default where there is one."""

    def _get_help_string(self, action):
        return action.help if action.default is None or action.default is False else super()._get_help_string(action)


def parser():
    top = argparse.ArgumentParser(prog="python -m course", description="GPT, twice: longer runs from the shell.")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")

    command = commands.add_parser("train", help="train a character GPT, with checkpoints", formatter_class=Defaults)
    words = {
        "data": "shakespeare, tinyshakespeare, or the path of a UTF-8 text file",
        "steps": "updates in all", "batch_size": "windows in a batch", "n_ctx": "positions in a window",
        "n_layer": "blocks", "n_head": "heads in a block", "n_embd": "channels",
        "lr": "highest learning rate", "min_lr": "learning rate at the end", "warmup": "steps of rising learning rate",
        "weight_decay": "decay of matrices", "clip": "largest gradient norm, inf for any", "seed": "of weights and batches",
    }
    for field in fields(train.Settings):
        command.add_argument(f"--{field.name.replace('_', '-')}", type=field.type, default=field.default, help=words[field.name])
    command.add_argument("--framework", choices=["pytorch", "mindspore"], default="pytorch", help="which half of the course trains")
    command.add_argument("--out", default=None, help="folder of the checkpoint (default: train/ in your work folder)")
    command.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    command.add_argument("--every", type=int, default=100, help="steps between checkpoints and validations")
    command.add_argument("--sample", type=int, default=300, help="characters to sample at the end")

    command = commands.add_parser("sample", help="text from a trained model", formatter_class=Defaults)
    command.add_argument("--out", default=None, help="folder of the checkpoint (default: train/ in your work folder)")
    command.add_argument("--prompt", help="text to go on from; without it the model starts by itself")
    command.add_argument("--tokens", type=int, default=300, help="characters to add")
    command.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest each time")
    command.add_argument("--top-k", type=int, default=40, help="draw among this many")
    command.add_argument("--seed", type=int, default=0, help="of the draws")

    command = commands.add_parser("bench", help="the course's GPT beside one from stock parts, and its port to MindSpore")
    command.add_argument("what", nargs="?", choices=["all", "step", "train", "sample", "port", "layer"], default="all", help="which figures (default all, about 15 minutes; layer is not among them)")
    command.add_argument("--steps", type=int, default=2000, help="training steps of the train figures (default 2000)")
    command.add_argument("--json", metavar="FILE", help="also write the figures to this file")
    layer.add_options(command)

    about = "run the whole course on this machine and write a report; made for an Ascend"
    command = commands.add_parser("ascend", help=about, description=f"{about[0].upper()}{about[1:]}. Stopped, it goes on where it was.")
    command.add_argument("--lessons", metavar="NN,NN", help="only these notebooks, for example 04,12; none for no notebook (default: all)")
    command.add_argument("--parts", metavar="NAME,NAME", help="only these parts before the notebooks, for example versions,parity; none for none (default: all)")
    command.add_argument("--out", default=None, help="folder of the report (default: ascend/ in your work folder)")
    command.add_argument("--fresh", action="store_true", help="do everything again; otherwise what went well in an earlier run is kept")

    launch.add_options(commands.add_parser("parallel", help="train on several processes of this machine (lesson 20)"))

    command = commands.add_parser("progress", help="what is passed and what is open")
    command.add_argument("lesson", nargs="?", help="one lesson, for example 04")

    about = "run lesson 22 and print its table of claims and verdicts (half a minute)"
    command = commands.add_parser("claims", help=about, description=f"{about[0].upper()}{about[1:]}.")
    command.add_argument("--markdown", action="store_true", help="as a Markdown table")

    command = commands.add_parser("verify", help="every check on your own package")
    command.add_argument("package", nargs="?", help="the folder my_gpt (default: the one in your work folder)")
    command.add_argument("--lessons", metavar="04,05", help="only these")

    command = commands.add_parser("release", help="for teachers: lessons to hand out, without the solutions")
    command.add_argument("--lessons", required=True, metavar="04,05", help="which, two digits each")
    command.add_argument("--to", required=True, metavar="DIR", help="a new or empty folder, or one that release wrote before")
    command.add_argument("--plain", action="store_true", help="a folder to hand out as it is, without nbgrader")
    command.add_argument("--pieces", choices=["reference", "own"], default="reference", help="what piece() of an earlier lesson gives a learner who has not passed it: the compiled reference of lessons already due, or nothing (default reference)")
    command.add_argument("--due", metavar="00,01", help="lessons whose answers may be packed (default: all before the first of --lessons)")

    command = commands.add_parser("grade", help="for teachers: mark submissions, each in a kernel of its own")
    command.add_argument("notebooks", nargs="+", metavar="NOTEBOOK", help="handed-in .ipynb files")
    command.add_argument("--json", action="store_true", help="print one JSON list in place of the text")
    command.add_argument("--resume", action="store_true", help="take over what the record holds of unchanged notebooks")
    command.add_argument("--record", default="marks.jsonl", metavar="FILE", help="where marks are written as they come (default marks.jsonl)")
    command.add_argument("--lesson", default="", metavar="04", help="of all notebooks (default: what their exercises say)")
    command.add_argument("--pieces", choices=["reference", "own"], default="reference", help="earlier answers: the course's, or my_gpt/ beside the notebook (default reference)")
    command.add_argument("--jobs", type=int, default=1, metavar="N", help="how many at a time (default 1)")
    command.add_argument("--cell-seconds", type=float, default=0, metavar="S", help="limit of a cell (default: by lesson, 60 to 180)")
    command.add_argument("--check-seconds", type=float, default=180, metavar="S", help="limit of the checks of one exercise (default 180)")
    command.add_argument("--total-seconds", type=float, default=900, metavar="S", help="limit of a submission (default 900)")
    command.add_argument("--memory", type=float, default=6, metavar="GB", help="limit of a submission (default 6)")
    return top


def run(options):
    if options.command == "train":
        settings = train.Settings(**{f.name: getattr(options, f.name) for f in fields(train.Settings)})
        if options.every < 1:
            raise train.TrainError(f"--every is {options.every} and must be at least 1.")
        if options.sample < 0:
            raise train.TrainError(f"--sample is {options.sample} and cannot be negative; 0 samples nothing.")
        done = train.train(settings, options.out or answers.folder() / "train", options.resume, options.every, framework=options.framework)
        if done is None:
            return 130
        if options.sample > 0:
            print(done.sample(tokens=options.sample))
    elif options.command == "sample":
        if not options.temperature >= 0:
            raise train.TrainError(f"--temperature is {options.temperature} and must be at least 0.")
        if options.tokens < 1:
            raise train.TrainError(f"--tokens is {options.tokens} and must be at least 1.")
        train.check_seed(options.seed)
        if options.top_k < 1:
            raise train.TrainError(f"--top-k is {options.top_k} and must be at least 1.")
        if options.prompt == "":
            raise train.TrainError("--prompt is empty: the model needs at least one character to go on from.")
        opened = train.open_run(options.out or answers.folder() / "train")
        try:
            print(opened.sample(options.prompt, options.tokens, options.temperature, options.top_k, options.seed))
        except ValueError as error:
            raise train.TrainError(f"The prompt does not fit this model: {error}.") from None
    elif options.command == "parallel":
        return launch.shell(options)
    elif options.command == "bench" and options.what == "layer":
        return layer.shell(options)
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
    elif options.command == "claims":
        from course import claims

        print(claims.run(options.markdown))
    elif options.command == "verify":
        from course.verify import verify

        return 0 if verify(options.package or answers.folder() / answers.PACKAGE, numbers(options.lessons)) else 1
    elif options.command == "release":
        from course.release import release

        print("\n".join(release(numbers(options.lessons), options.to, options.plain, options.pieces, numbers(options.due))))
    elif options.command == "grade":
        return grade(options)
    elif options.command == "ascend":
        from course import ascend

        lessons, parts = (None if given is None else [] if given == "none" else given.split(",") for given in (options.lessons, options.parts))
        return 0 if ascend.run(options.out or answers.folder() / "ascend", lessons, parts, options.fresh, say=lambda line: print(line, flush=True)) else 1
    else:
        progress(options.lesson)
    return 0


def numbers(listed):
    """["04", "05"] of "04,05"; None stays None."""
    return None if listed is None else [f"{n.strip():0>2}" for n in listed.split(",") if n.strip()]


def grade(options):
    from course import marking, registry

    lesson = f"{options.lesson:0>2}" if options.lesson else ""
    if lesson and lesson not in registry.LESSONS:
        raise marking.MarkingError(f"There is no lesson {options.lesson}: they run from {min(registry.LESSONS)} to {max(registry.LESSONS)}.")
    if min(options.check_seconds, options.total_seconds, options.memory, options.jobs) <= 0 or options.cell_seconds < 0:
        raise marking.MarkingError("The limits and --jobs must be above 0.")
    limits = marking.Limits(options.cell_seconds, options.check_seconds, options.total_seconds, int(options.memory * 2**30))
    reports, again = [], 0
    for report, old in marking.grade(options.notebooks, limits, Path(options.record), options.resume, lesson, options.pieces, options.jobs, say=lambda text: print(text, file=sys.stderr, flush=True)):
        reports.append(report)
        again += old
        if not options.json:
            print(report.text(), flush=True)
    if options.json:
        listed = [{**asdict(r), "points": r.points, "of": r.of} for r in reports]
        print(json.dumps([{k: v for k, v in one.items() if k != "outputs"} for one in listed], indent=1, ensure_ascii=False))
    elif len(reports) > 1:
        print(f"{len(reports)} submissions" + (f", {again} from {options.record}" if again else "") + f", {sum(r.points for r in reports)} of {sum(r.of for r in reports)} points in all.")
    return 1 if any(r.problem for r in reports) else 0


def main():
    try:
        sys.exit(run(parser().parse_args()))
    except (train.TrainError, corpus.CorpusError, ImportError, ValueError) as error:
        sys.exit(str(error))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "alloc" not in str(error):
            raise
        sys.exit("There is not enough memory: take a smaller model, or smaller --n-ctx and --batch-size.")
    except OSError as error:
        sys.exit(f"{error.filename or 'A file'} cannot be used: {error.strerror}.")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
