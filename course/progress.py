"""How far the learner is."""
from course import answers, registry


def progress(lesson=None):
    """Print what is passed and what is open, of one lesson ("04") or of all.

    Raises:
        ValueError: no such lesson.
    """
    if lesson is None:
        print(overview())
        return
    lesson = f"{lesson:0>2}"
    if lesson not in registry.LESSONS:
        raise ValueError(f"There is no lesson {lesson}: they run from {min(registry.LESSONS)} to {max(registry.LESSONS)}.")
    passed = answers.read()
    for exercise in registry.EXERCISES.values():
        if exercise.lesson == lesson:
            print(f"{'✓' if exercise.id in passed else '·'} {exercise.id}  ({exercise.points} points)")


def overview():
    passed = answers.read()
    lines = []
    for lesson, title in registry.LESSONS.items():
        all_ids = [e for e in registry.EXERCISES.values() if e.lesson == lesson]
        done = [e for e in all_ids if e.id in passed]
        points = f"{sum(e.points for e in done)} of {sum(e.points for e in all_ids)} points"
        lines.append(f"{lesson} {title:<26}{len(done):>2} of {len(all_ids)} exercises   {points}")
    done = sum(e.points for e in registry.EXERCISES.values() if e.id in passed)
    lines.append(f"{'':29}{done} of {sum(e.points for e in registry.EXERCISES.values())} points")
    return "\n".join(lines)
