"""The stopwatch: candidates in turn, many times, medians and quartiles, ratios of one run."""
import statistics
import time
from dataclasses import dataclass

from course.device import banner


class Repeats:
    """Something with a list `seconds`, one number for each repeat."""

    @property
    def median(self):
        return statistics.median(self.seconds)

    @property
    def quartiles(self):
        low, _, high = statistics.quantiles(self.seconds, n=4)
        return low, high


@dataclass
class Timing(Repeats):
    """Seconds of one candidate: every repeat, and the first call apart."""

    name: str
    first: float
    seconds: list
    banner: str = ""   # of the process it was measured in, where that is another one


@dataclass(frozen=True)
class Operator:
    """A line of a profiler's table."""

    name: str
    calls: float
    milliseconds: float                                       # of all these calls


def measure(candidates, seconds=2.0, warmup=2, least=5, most=200, wait=None):
    """Time functions against each other.

    They run in turn, one call each, again and again, so that a machine that slows down slows all of them.
    The first call is kept apart (it may compile), `warmup` further ones are thrown away.

    Args:
        candidates: {name: function without arguments}.
        seconds: how long to go on, all candidates together.
        least, most: bounds on the number of counted repeats.
        wait: called after each function, to wait until a device is done; None for PyTorch on a CPU.

    Returns:
        {name: Timing}.
    """

    def clock(function):
        start = time.perf_counter()
        function()
        if wait is not None:
            wait()
        return time.perf_counter() - start

    timings = {name: Timing(name, clock(function), []) for name, function in candidates.items()}
    for function in candidates.values():
        for _ in range(warmup):
            clock(function)
    end = time.perf_counter() + seconds
    repeats = 0
    while repeats < least or (repeats < most and time.perf_counter() < end):
        for name, function in candidates.items():
            timings[name].seconds.append(clock(function))
        repeats += 1
    return timings


def report(timings, base=None):
    """The timings as lines of text: where from, then median, quartiles and ratio to `base` (default: the first)."""
    base = timings[base or next(iter(timings))].median
    width = max(len(name) for name in timings)
    sources = list(dict.fromkeys(t.banner or banner() for t in timings.values()))
    lines = [*sources, f"{'':{width}}   median ms   quartiles ms        ratio"]
    for name, timing in timings.items():
        low, high = timing.quartiles
        lines.append(f"{name:{width}}  {1e3 * timing.median:10.3f}   {1e3 * low:.3f} ... {1e3 * high:.3f}   {timing.median / base:8.2f}")
    return "\n".join(lines)
