"""GPT, twice: what the notebooks import. Neither PyTorch nor MindSpore is imported here."""
from course.check import check
from course.exercise import exercise, piece, use_reference
from course.hints import hint, solution
from course.kernel import setup
from course.progress import progress

__all__ = ["check", "exercise", "hint", "piece", "progress", "setup", "solution", "use_reference"]
