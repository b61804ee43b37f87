"""Read a result of MindSpore without keeping a core busy until it is there."""
import statistics
import time


class Fetch:
    """fetch(tensor) is tensor.asnumpy(), after a pause that it finds by itself.

    In graph mode the thread of Python spins while the kernels run, on a machine with two cores it takes one of them away
    from the threads that compute. A thread that sleeps takes none. The best pause is a little shorter than the step: too
    short, and it spins; too long, and the step waits for it. The first steps are used to find it, and they are
    real steps, nothing is computed for the search alone.

    Args:
        trials: steps for each pause that is tried.
        shares: pauses to try, as shares of the fastest step without one.
    """

    def __init__(self, trials=5, shares=(0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9)):
        self.trials = trials
        self.shares = shares
        self.pause = 0.0                                      # seconds
        self.plan = [0.0]                                     # pauses still to try, the present one first
        self.tried = {}                                       # pause -> seconds of its steps
        self.refined = False
        self.last = None

    def __call__(self, tensor):
        if self.pause:
            time.sleep(self.pause)
        value = tensor.asnumpy()
        now = time.perf_counter()
        if self.last is not None and self.plan:
            self.tried.setdefault(self.pause, []).append(now - self.last)
            self.go_on()
        self.last = now
        return value

    def go_on(self):
        """Take the next pause once the present one has had its trials, and the best one at the end."""
        if len(self.tried[self.pause]) < self.trials:
            return
        self.plan.pop(0)
        if not self.plan and len(self.tried) == 1:
            fastest = min(self.tried[0.0])
            self.plan = [share * fastest for share in self.shares]
        elif not self.plan and not self.refined:
            self.refined = True
            best = self.best()
            self.plan = [best * factor for factor in (0.92, 1.06, 1.12) if best]
        self.pause = self.plan[0] if self.plan else self.best()

    def best(self):
        """The tried pause with the shortest median step; the first step of each still shows the pause before it."""
        return min(self.tried, key=lambda pause: statistics.median(self.tried[pause][1:] or self.tried[pause]))

    @property
    def settled(self):
        """Whether the search is over."""
        return not self.plan
