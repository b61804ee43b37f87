"""Lesson 20 in real processes: gradients, a killed rank, time limits, and nothing left over."""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from course.check import run as run_checks
from course.parallel import job, launch, worker
from solutions.pytorch import parallel

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 400   # seconds; only a run that hangs comes near it, however slow and busy the machine is


def alone(program, *arguments):
    """The report of a program that runs on one process, without a launcher."""
    command = [sys.executable, "-m", f"course.parallel.{program}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=LIMIT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def processes_named(name):
    """Running processes that inherited the name; a zombie has no environment any more."""
    return launch.left_over(name)


@pytest.fixture
def name(monkeypatch):
    """The name of the next run, to look for what it leaves."""
    monkeypatch.setattr(launch.uuid, "uuid4", lambda: type("Fixed", (), {"hex": f"test{os.getpid()}"}))
    yield f"test{os.getpid()}"
    assert processes_named(f"test{os.getpid()}") == []


def test_shards_make_up_the_batch():
    batch = torch.arange(24).reshape(12, 2)
    for n in (1, 2, 3, 4, 6, 12):
        assert torch.equal(torch.cat([parallel.shard(batch, rank, n) for rank in range(n)]), batch)


@pytest.mark.parametrize("p, m", [(1, 1), (2, 1), (2, 8), (4, 3), (5, 20)])
def test_bubble(p, m):
    table = parallel.gpipe_schedule(p, m)
    assert sum(line.count(None) for line in table) / sum(map(len, table)) == pytest.approx((p - 1) / (m + p - 1))


@pytest.fixture(scope="module")
def whole():
    """The reports of two ranks with DDP and accumulation, never interrupted."""
    return launch.run("data_parallel_pytorch", "--compare", "--ddp", "--micro-batches", 4, "--steps", 8, seconds=LIMIT)


def test_gradients_of_two_ranks_equal_those_of_one_process(whole):
    for report in whole:
        assert report["own"] <= 1e-6 and report["ddp"] <= 1e-6 and report["alone"] > 1e-3
        sends = {use: found["all-reduces"] for use, found in report["uses"].items()}
        assert sends == {"no no_sync": 4, "no_sync: pass, after backward": 4, "around backward only": 4, "around all micro-batches": 0, "your accumulate": 1}
        assert report["losses"] == whole[0]["losses"]


def test_a_killed_run_is_resumed(whole, tmp_path, name):
    """SIGKILL in the middle of an update; the rest of the run has the losses of one that was not interrupted, without DDP too."""
    with pytest.raises(launch.RunFailed, match=r"^Rank 1 of 2 died \(SIGKILL\); the other ranks were ended\.$") as failed:
        launch.run("data_parallel_pytorch", "--steps", 8, "--every", 2, "--out", tmp_path, "--kill", "1@5", seconds=LIMIT)
    assert failed.value.rank == 1
    assert os.listdir(tmp_path) == ["checkpoint.pt"]
    resumed = alone("data_parallel_pytorch", "--steps", 8, "--out", tmp_path, "--resume")   # on one process: the batches are the same
    assert resumed["first"] == 4
    assert np.abs(np.array(resumed["losses"]) - whole[0]["losses"][4:]).max() <= 1e-5


def test_a_killed_run_of_mindspore_is_resumed(whole, tmp_path, name):
    with pytest.raises(launch.RunFailed, match=r"^Rank 0 of 2 died \(SIGKILL\)"):
        launch.run("data_parallel_mindspore", "--steps", 6, "--every", 2, "--out", tmp_path, "--kill", "0@5", seconds=LIMIT)
    resumed = alone("data_parallel_mindspore", "--steps", 6, "--out", tmp_path, "--resume")
    assert resumed["first"] == 4
    straight = whole[0]["losses"][4:6]                        # of the other framework
    assert np.abs(np.array(resumed["losses"]) - straight).max() <= 1e-5


def test_a_death_that_the_launcher_has_told_is_enough(tmp_path):
    """msrun by itself waits half a minute longer for the other ranks."""
    launcher = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        (tmp_path / "err").write_text("Worker process 771 exit with exception. Error code: -9.")
        assert launch.wait(launcher, tmp_path, time.monotonic() + LIMIT) and launcher.poll() is None
        (tmp_path / "err").write_text("nothing yet")
        assert not launch.wait(launcher, tmp_path, time.monotonic() + 0.3)
    finally:
        launcher.kill()
        launcher.wait()


def test_the_time_is_up(name, monkeypatch):
    """The limit is reached while both ranks work: no process of the run is left."""

    def until_the_ranks_work(started, folder, deadline):
        assert until(lambda: len(list(folder.glob("rank*.pid"))) == 2, LIMIT)
        assert len(processes_named(name)) >= 3                # torchrun and two ranks
        return False

    monkeypatch.setattr(launch, "wait", until_the_ranks_work)
    with pytest.raises(launch.RunFailed, match=f"not over after {LIMIT} seconds"):
        launch.run("data_parallel_pytorch", "--steps", 10_000_000, seconds=LIMIT)


def test_an_error_of_a_rank_is_handed_in(tmp_path, monkeypatch):
    monkeypatch.setenv(worker.REPORTS, str(tmp_path))
    monkeypatch.setattr(worker, "watch", lambda: None)

    def breaks_off():
        raise FileNotFoundError("There is no checkpoint yet")

    with pytest.raises(SystemExit, match="rank 0: FileNotFoundError: There is no checkpoint yet"):
        worker.run(breaks_off)
    assert failed(tmp_path, "failed (exitcode: 1) local_rank: 0 (pid: 5)", processes=1) == "Rank 0 of 1 stopped: FileNotFoundError: There is no checkpoint yet"


def test_ranks_end_when_nobody_waits_for_them():
    """The process that started the run is killed: launcher and ranks end by themselves."""
    program = "from course.parallel import launch\nlaunch.uuid.uuid4 = lambda: type('Fixed', (), {'hex': 'orphans%d'})\nlaunch.run('data_parallel_pytorch', '--steps', 100000000, seconds=1000)"
    name = f"orphans{os.getpid()}"
    parent = subprocess.Popen([sys.executable, "-c", program % os.getpid()], cwd=ROOT)
    try:
        assert until(lambda: len(processes_named(name)) >= 3, LIMIT)   # torchrun and two ranks
        time.sleep(1)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert until(lambda: not processes_named(name), LIMIT), processes_named(name)


def until(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.2)
    return False


def failed(folder, log, **options):
    settings = {"processes": 2, "ended": True, "seconds": 9, **options}
    return str(launch.failure(folder, settings["processes"], settings["ended"], settings["seconds"], log))


def test_who_is_named(tmp_path):
    """A rank that lost its peer is not the culprit, whoever was seen first."""
    (tmp_path / "rank0.error").write_text("RuntimeError: [pair.cc:537] Read error [127.0.0.1]:49856: Connection reset by peer")
    log = "failed (exitcode: 1) local_rank: 0 (pid: 5) of binary: python\nfailed (exitcode: -9) local_rank: 1 (pid: 6) of binary: python"
    assert failed(tmp_path, log) == "Rank 1 of 2 died (SIGKILL); the other ranks were ended."
    (tmp_path / "rank1.error").write_text("ValueError: 7 rows")
    assert failed(tmp_path, "failed (exitcode: 1) local_rank: 0 (pid: 5)") == "Rank 1 of 2 stopped: ValueError: 7 rows"


def test_who_is_named_by_msrun(tmp_path):
    (tmp_path / "rank3.pid").write_text("771")
    assert failed(tmp_path, "Worker process 771 exit with exception. Error code: -9.", processes=4) == "Rank 3 of 4 died (SIGKILL); the other ranks were ended."
    assert failed(tmp_path, "Worker process 5 exit with exception. Error code: 1.") == "One of 2 ranks ended with exit code 1."


def test_what_argparse_refuses_is_told(tmp_path):
    log = "data_parallel_pytorch.py: error: --batch-size 16 cannot be cut\nfailed (exitcode: 2) local_rank: 0 (pid: 5)"
    assert failed(tmp_path, log) == "--batch-size 16 cannot be cut"


def test_no_other_program_and_no_zero_processes():
    with pytest.raises(ValueError, match="There is no program 'x'"):
        launch.run("x")
    with pytest.raises(ValueError, match="at least 1"):
        launch.run("pipeline", processes=0)
    for seconds in (0, -5, float("nan")):
        with pytest.raises(ValueError, match="should be above 0"):
            launch.run("pipeline", seconds=seconds)


@pytest.mark.parametrize("arguments, words", [
    (["--batch-size", "7", "--micro-batches", "2"], "cannot be cut into 2 equal parts"), (["--kill", "2@1"], "RANK@STEP with a rank below 1"),
    (["--n-embd", "31"], "cannot be cut into --n-head 2"), (["--resume"], "--resume needs the folder"), (["--every", "0"], "must be at least 1"),
    (["--steps", "-1"], "--steps is -1 and cannot be below 0"), (["--seed", "-1"], "--seed is -1"), (["--n-ctx", "200000"], "more than the text has"), (["--kill", "0@20"], "never happens"),
])
def test_bad_arguments_get_a_sentence(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["data_parallel_pytorch.py", *arguments])
    with pytest.raises(SystemExit):
        job.read("", 1)
    assert words in capsys.readouterr().err


def test_the_shell_names_every_option(monkeypatch, capsys):
    from course.__main__ import parser, run

    options = parser().parse_args(["parallel", "data", "--processes", "2", "--steps", "3", "--ddp", "--out", "x"])
    got = {}

    def stand_in(program, *arguments, **settings):
        got.update(program=program, arguments=arguments, **settings)
        return [{"rank": 0, "backend": "gloo", "first": 0, "losses": [4.4, 4.3, 4.2]}]

    monkeypatch.setattr(launch, "run", stand_in)
    assert run(options) == 0
    assert got["program"] == "data_parallel_pytorch" and got["arguments"] == ("--steps", "3", "--out", str(Path("x").resolve()), "--ddp")
    assert capsys.readouterr().out == "rank 0 over gloo: updates 0 to 3, loss 4.400 to 4.200\n"
    with pytest.raises(ValueError, match="--framework pytorch"):
        run(parser().parse_args(["parallel", "pipeline", "--framework", "mindspore"]))
    options = parser().parse_args(["parallel", "pipeline", "--cuts", "1", "2", "--n-embd", "32"])
    monkeypatch.setattr(launch, "run", lambda program, *arguments, **settings: got.update(program=program, arguments=arguments) or [])
    assert run(options) == 0 and got["program"] == "pipeline" and got["arguments"] == ("--n-embd", "32", "--cuts", "1", "2")


@pytest.mark.parametrize("arguments", [["pipeline", "--resume"], ["pipeline", "--steps", "3"], ["data", "--cuts", "2"], ["data", "--framework", "mindspore", "--ddp"]])
def test_an_option_without_effect_is_told(arguments):
    from course.__main__ import parser, run

    with pytest.raises(ValueError, match="has no effect on"):
        run(parser().parse_args(["parallel", *arguments]))


def test_a_checkpoint_is_praised_only_by_the_run_that_wrote_it(tmp_path, monkeypatch, capsys):
    from course.__main__ import parser, run

    path = tmp_path / "checkpoint.pt"

    def fails(writes):
        def stand_in(*arguments, **settings):
            if writes:
                path.touch()
            raise launch.RunFailed("Rank 0 of 2 stopped: ValueError: no.")

        monkeypatch.setattr(launch, "run", stand_in)
        assert run(parser().parse_args(["parallel", "data", "--out", str(tmp_path)])) == 1
        return capsys.readouterr().err

    assert "with --resume goes on from" in fails(writes=True)
    os.utime(path, (1, 1))
    assert fails(writes=False) == "Rank 0 of 2 stopped: ValueError: no.\n"


def test_a_checkpoint_of_another_run_gets_a_sentence(tmp_path):
    def load(path, model, optimizer):
        raise RuntimeError("Error(s) in loading state_dict for GPT:\n\tsize mismatch for wte.weight")

    with pytest.raises(ValueError, match="cannot be resumed with these sizes, or is damaged: size mismatch for wte.weight"):
        job.resumed(load, tmp_path / "checkpoint.pt", None, None)


def test_a_pipeline_of_one_stage():
    report = alone("pipeline", "--cuts", 2, "--repeats", 1, "--n-layer", 1, "--n-embd", 8)
    assert report["runs"]["2"]["gap"] <= 1e-6 and report["runs"]["2"]["messages"] == 0


def test_the_checks_leave_no_process_group_behind():
    import torch.distributed as dist

    def breaks_off(params):
        raise RuntimeError("in the middle")

    assert run_checks("pytorch.parallel.average_gradients", parallel.average_gradients).passed
    assert not run_checks("pytorch.parallel.average_gradients", breaks_off).passed
    assert not dist.is_initialized()


def test_an_open_group_is_told(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        verdict = run_checks("pytorch.parallel.average_gradients", parallel.average_gradients, only_until_first_failure=True)
        assert "dist.destroy_process_group() closes it" in verdict.message and dist.is_initialized()
    finally:
        dist.destroy_process_group()


def test_a_worker_watches_its_parent():
    assert worker.alive(os.getpid())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert not worker.alive(gone.pid)
