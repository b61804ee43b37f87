"""What nbval cannot see in a notebook, as a list of problems in words."""
import ast
import re

from course import registry
from tools.inject import exercise_nodes, solution_source

TAGS = {"nbval-ignore-output"}
TIMED = re.compile(r"timing\.|bench\.measure|perf_counter|profile|train\w*\(|subprocess|compile\(|from_pretrained|try_to_load")
PATHS = re.compile(r"/tmp/|/home/|/root/|/usr/|site-packages|[A-Z]:\\\\")
CLOCKS = {"perf_counter", "process_time", "thread_time", "monotonic", "getrusage", "peak_memory"}   # and a profiler's, a process's
FIGURES = {"median", "first", "seconds", "quartiles", "milliseconds", "self_cpu_time_total", "cpu_time_total", "memory", "peak"}
KEYS = {"milliseconds", "seconds", "memory", "faults"}        # of what a process of its own reported
LEARNERS_OWN = re.compile(r"^\s*(?:\w+ = )?(hint|solution|use_reference|progress)\(", re.MULTILINE)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def problems(notebook, lesson):
    """Everything that is wrong with the stored notebook of a lesson."""
    found = []
    for rule in (runs, outputs, sources, tags, clocks, exercises, answers_shown, form):
        found += rule(notebook, lesson)
    return found


def runs(notebook, lesson):
    """Each code cell has run, in order: nbval passes a cell without a count silently."""
    counts = [cell.execution_count for cell in code_cells(notebook)]
    return [] if counts == list(range(1, len(counts) + 1)) else [f"execution counts are {counts}: run make notebooks"]


def outputs(notebook, lesson):
    found = []
    for number, cell in enumerate(code_cells(notebook), 1):
        for output in cell.outputs:
            text = "".join(output.get("text", "")) + "".join(output.get("data", {}).get("text/plain", ""))
            if output.get("name") == "stderr" or output.output_type == "error":
                found.append(f"cell {number} stores an error or something on stderr")
            if PATHS.search(text):
                found.append(f"cell {number} stores a path of this machine")
            if re.search(r" at 0x[0-9a-f]+", text):
                found.append(f"cell {number} stores an address")
            if any("widget" in kind for kind in output.get("data", {})):
                found.append(f"cell {number} stores a widget")
        if cell.source.startswith("check(") and not "".join(o.get("text", "") for o in cell.outputs).startswith("✓"):
            found.append(f"cell {number} stores a check that did not pass")
    return found


def sources(notebook, lesson):
    found = []
    for number, cell in enumerate(code_cells(notebook), 1):
        if cell.source.rstrip().endswith(";"):
            found.append(f"cell {number} ends in ; and nbval would compare a value that is not shown")
        if re.search(r"^%%time|clear_output|tqdm", cell.source, re.MULTILINE):
            found.append(f"cell {number} uses %%time, clear_output or tqdm, which no run repeats")
        if LEARNERS_OWN.search(cell.source):
            found.append(f"cell {number} calls {LEARNERS_OWN.search(cell.source)[1]}(), which is for the learner to call")
        if re.search(r"(from|import) solutions", cell.source):
            found.append(f"cell {number} imports solutions: use piece()")
        for line in cell.source.split("\n"):
            if len(line) > 100:
                found.append(f"cell {number} has a line of {len(line)} characters, which JupyterLab cuts: {line[:50]} ...")
    return found


def tags(notebook, lesson):
    """A tag may hide the output of a timing or training cell, and the next code cell must be compared."""
    found = []
    cells = code_cells(notebook)
    for number, cell in enumerate(cells, 1):
        given = set(cell.metadata.get("tags", []))
        if given - TAGS:
            found.append(f"cell {number} has unknown tags {sorted(given - TAGS)}")
        if "nbval-ignore-output" not in given:
            continue
        if not TIMED.search(cell.source):
            found.append(f"cell {number} is hidden from nbval and neither times nor trains: it could be compared")
        following = cells[number] if number < len(cells) else None
        if following is None or following.metadata.get("tags") or not following.outputs:
            found.append(f"cell {number} is hidden from nbval and no compared cell follows it")
    return found


def clocks(notebook, lesson):
    """No compared cell reads what a clock, a profiler or a memory counter said, by whatever names it went: a busy machine says something else."""
    found, timed = [], set()
    for number, cell in enumerate(code_cells(notebook), 1):
        hidden = "nbval-ignore-output" in cell.metadata.get("tags", [])
        for statement in simple_statements(ast.parse(cell.source).body):
            if not asks_clock(statement, timed):
                timed -= names_bound(statement)
                continue
            timed |= names_bound(statement)
            if not hidden and not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
                found.append(f"cell {number} is compared and depends on a clock: {ast.unparse(statement)[:60]}")
    return found


def simple_statements(body):
    """The statements of a block and of the loops, conditions and withs in it, in order; their heads as expressions."""
    for statement in body:
        if isinstance(statement, (ast.For, ast.While, ast.If, ast.With, ast.Try)):
            if isinstance(statement, ast.For):
                yield ast.copy_location(ast.Assign([statement.target], statement.iter), statement)
            elif isinstance(statement, (ast.While, ast.If)):
                yield ast.copy_location(ast.Expr(statement.test), statement)
            for part in ("body", "orelse", "finalbody"):
                yield from simple_statements(getattr(statement, part, []))
        else:
            yield statement


def asks_clock(statement, timed):
    """Does a statement ask a clock, the figures of a Timing or a profile, or a name that came from one? A function: does its result?"""
    if isinstance(statement, ast.FunctionDef):
        timed = timed - {argument.arg for argument in ast.walk(statement.args) if isinstance(argument, ast.arg)}
        for inner in simple_statements(statement.body):
            asks = asks_clock(inner, timed)
            if asks and isinstance(inner, ast.Return):
                return True
            timed = timed | names_bound(inner) if asks else timed - names_bound(inner)
        return False
    if isinstance(statement, ast.ClassDef):
        return any(asks_clock(inner, timed) for inner in statement.body)
    called = {node.func for node in ast.walk(statement) if isinstance(node, ast.Call)}
    timed = timed - names_of_comprehensions(statement)
    for node in outside_operators(statement):
        if isinstance(node, (ast.Attribute, ast.Name)) and {getattr(node, "attr", None), getattr(node, "id", None)} & CLOCKS:
            return True
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "slices.peak"):
            return True
        if isinstance(node, ast.Attribute) and node.attr in FIGURES and node not in called:
            return True                                       # x.median(dim=0) is a tensor's method, t.median a figure
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value in KEYS:
            return True
        if isinstance(node, ast.Name) and node.id in timed and isinstance(node.ctx, ast.Load):
            return True
    return False


def outside_operators(node):
    """ast.walk, but not into timing.Operator(...): who reads its milliseconds later reads a clock, who reads its calls does not."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.Call) and ast.unparse(child.func) == "timing.Operator"):
            yield from outside_operators(child)


def names_of_comprehensions(statement):
    targets = [node.target for node in ast.walk(statement) if isinstance(node, ast.comprehension)]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}


def names_bound(statement):
    """What a statement assigns, defines or appends to."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    bound = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound -= names_of_comprehensions(statement)
    if isinstance(statement, ast.Assign):                     # a[i] = ... changes a
        bound |= {base(target) for target in statement.targets}
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and isinstance(statement.value.func, ast.Attribute):
        if statement.value.func.attr in ("append", "extend", "update", "add"):
            bound.add(base(statement.value.func.value))
    return bound - {None}


def base(node):
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def exercises(notebook, lesson):
    found, seen = [], []
    cells = notebook.cells
    for number, cell in enumerate(cells):
        if cell.cell_type != "code":
            continue
        for exercise_id, node in exercise_nodes(cell.source):
            seen.append(exercise_id)
            if exercise_id not in registry.EXERCISES:
                found.append(f"{exercise_id} is not in the registry")
                continue
            found += stub(exercise_id, node)
            found += place(exercise_id, node, cells, number)
    listed = [e.id for e in registry.EXERCISES.values() if e.lesson == lesson]
    if sorted(seen) != sorted(listed):
        found.append(f"the exercises are {seen}, the registry lists {listed}")
    return found


def functions(node):
    return [node] if isinstance(node, ast.FunctionDef) else [n for n in node.body if isinstance(n, ast.FunctionDef)]


def stub(exercise_id, node):
    """Each function of a stub is a docstring, if any, and raise NotImplementedError; its arguments are the answer's."""
    found = []
    answer = ast.parse(solution_source(exercise_id)).body[0]
    answers = {f.name: f for f in functions(answer)}
    if ast.get_docstring(node) is None:
        found.append(f"{exercise_id} has no docstring")
    if not functions(node):
        found.append(f"{exercise_id} is no stub")
    for function in functions(node):
        body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        if [ast.unparse(s) for s in body] != ["raise NotImplementedError"]:
            found.append(f"{exercise_id} is no stub: {function.name} holds more than raise NotImplementedError")
        if function.name not in answers:
            found.append(f"{exercise_id}: the answer has no {function.name}")
        elif arguments(function) != arguments(answers[function.name]):
            found.append(f"{exercise_id}: the arguments of {function.name} are {arguments(function)}, the answer's {arguments(answers[function.name])}")
    return found


def arguments(function):
    names = [a.arg for a in function.args.args + function.args.kwonlyargs]
    defaults = [ast.unparse(d) for d in function.args.defaults]
    return names, defaults


def place(exercise_id, node, cells, number):
    """Text with two hints above, the check below, and marking metadata on both."""
    found = []
    above, below = cells[number - 1], cells[number + 1] if number + 1 < len(cells) else None
    if above.cell_type != "markdown" or len(re.findall(r"<details>\s*<summary>Hint \d", above.source)) < 2:
        found.append(f"{exercise_id} has no text with two hints right above it")
    if below is None or below.source.strip() != f"check({node.name})":
        found.append(f"{exercise_id} has no check({node.name}) right below it")
        return found
    grade_id = exercise_id.replace(".", "-")
    if cells[number].metadata.get("nbgrader", {}).get("grade_id") != grade_id:
        found.append(f"{exercise_id} has no marking metadata: run make notebooks")
    marked = below.metadata.get("nbgrader", {})
    if marked.get("grade_id") != f"check-{grade_id}" or marked.get("points") != registry.find(exercise_id).points:
        found.append(f"the check of {exercise_id} has no marking metadata: run make notebooks")
    return found


def plain(text):
    """Statement lines without comments, docstrings and spaces."""
    lines = [re.sub(r"\s+", "", line.partition("  #")[0]) for line in text.split("\n")]
    return [line for line in lines if line and not line.startswith(("#", '"""', "def", "class", "@"))]


def answer_lines(exercise_id):
    node = ast.parse(solution_source(exercise_id)).body[0]
    lines = []
    for function in functions(node):
        if ast.get_docstring(function) is not None:
            function.body = function.body[1:] or [ast.Pass()]
        lines.append(plain("\n".join(ast.unparse(s) for s in function.body)))
    return lines


def answers_shown(notebook, lesson):
    """No two lines of an answer stand together in a notebook, and no long one-line answer does."""
    found = []
    shown = []
    for cell in notebook.cells:
        try:
            text = ast.unparse(ast.parse(cell.source)) if cell.cell_type == "code" else cell.source
        except SyntaxError:
            text = cell.source
        shown.append("\n".join(plain(text)))
    for exercise in registry.EXERCISES.values():
        if exercise.lesson < lesson:
            continue
        for lines in answer_lines(exercise.id):
            windows = ["\n".join(lines[i : i + 2]) for i in range(len(lines) - 1)] if len(lines) > 1 else lines
            for window in windows:
                if len(window) >= 40 and any(window in text for text in shown):
                    found.append(f"lines of the answer to {exercise.id} stand in the notebook: {window.splitlines()[0]}")
    return found


def form(notebook, lesson):
    found = []
    kinds = {kind for cell in code_cells(notebook) for output in cell.outputs for kind in output.get("data", {})}
    if "image/png" not in kinds:
        found.append("there is no picture")
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    if not text.startswith(f"# {lesson} "):
        found.append(f"the first cell does not start with # {lesson}")
    if "## What you built, what comes next" not in text:
        found.append("the closing section is missing")
    return found
