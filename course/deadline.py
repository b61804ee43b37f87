"""A limit on the time that a learner's code may take."""
import _thread
import signal
import threading


class TooLong(BaseException):
    """Not an Exception, so that `except Exception` in the code under test does not swallow it."""


class deadline:
    """Context manager: raises TooLong in its block after this many seconds of wall time.

    Works in the main thread. On Unix the alarm repeats every millisecond, so that a bare `except:` inside a
    loop swallows some of them and not all. Elsewhere the interrupt of the kernel is used.
    """

    def __init__(self, seconds):
        self.seconds = seconds
        self.late = False

    def __enter__(self):
        self.alarm = self.timer = None
        if threading.current_thread() is not threading.main_thread():
            return
        if hasattr(signal, "setitimer"):
            self.alarm = signal.signal(signal.SIGALRM, self.stop)
            signal.setitimer(signal.ITIMER_REAL, self.seconds, 0.001)
        else:
            self.timer = threading.Timer(self.seconds, self.interrupt)
            self.timer.start()

    def __exit__(self, kind, error, trace):
        if self.alarm is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.alarm)
        if self.timer is not None:
            self.timer.cancel()
            if self.late and kind is KeyboardInterrupt:
                raise TooLong from None

    def stop(self, signum, frame):
        if frame is None or frame.f_code.co_filename != __file__:   # not while the block is being left
            raise TooLong

    def interrupt(self):
        self.late = True
        _thread.interrupt_main()
