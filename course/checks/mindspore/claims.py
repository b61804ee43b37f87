"""Checks of lesson 22: a small package of our own, in a temporary folder, is looked through by the learner's function."""
import contextlib
import importlib
import sys
import tempfile
from itertools import count
from pathlib import Path

from course.checks import checks, fail

EXISTS = "mindspore.claims.api_exists"

FILES = {
    "__init__.py": """
from . import core
from .core import Layer
from . import inner as short
nothing = None
zero = 0
calls = []
def build():
    calls.append("build")
def __getattr__(name):
    if name == "lazy":
        return 1
    raise AttributeError(name)
""",
    "core.py": """
class Layer:
    width = 3
    def construct(self):
        pass
""",
    "hidden.py": "def found(): pass\n",
    "loud.py": "from . import calls\ncalls.append('loud')\n",
    "inner/__init__.py": "",
    "inner/deep.py": "def bottom(): pass\n",
    "later/__init__.py": "from ..  import calls\ncalls.append('later')\n",
    "later/part.py": "",
}
NUMBERS = count()


@contextlib.contextmanager
def package():
    """A fresh package that can be imported inside; gives its name."""
    name = f"pack{next(NUMBERS)}"
    with tempfile.TemporaryDirectory() as folder:
        for path, text in FILES.items():
            file = Path(folder, name, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        try:
            yield name
        finally:
            sys.path.remove(folder)
            for module in [m for m in sys.modules if m.partition(".")[0] == name]:
                del sys.modules[module]


def answer(function, name, shown):
    """What the function says of a name: True or False, else a sentence."""
    try:
        got = function(name)
    except (AttributeError, ImportError) as error:
        fail(
            f"{shown!r} ends in {type(error).__name__}: a name that is not there is an answer, False, and no error.",
            look="what you do before you know that the next part exists",
        )
    if type(got) is not bool:
        fail(f"{shown!r} gives {type(got).__name__} and must give True or False.", look="the return: say whether it is there, not what it is")
    return got


def expect(function, pack, names, wanted, mistake, look):
    """The function must say `wanted` of each name; they are shown with the package called pack."""
    for name in names:
        shown = f"pack{name}"
        if answer(function, pack + name, shown) is not wanted:
            fail(mistake, f"api_exists({shown!r}) is {not wanted}, expected {wanted}", look)


@checks(EXISTS, "names that are there")
def there(function):
    with package() as pack:
        expect(function, pack, [""], True, "an installed package is not found by its own name.", "the first part: it must be imported or found before anything can be asked of it")
        expect(function, pack, [".build", ".core", ".Layer", ".core.Layer"], True, "an attribute of a package is not found: the way from part to part breaks.", "the walk: each part is an attribute of the object before it")
        expect(function, pack, [".Layer.construct", ".core.Layer.width"], True, "what stands inside a class is not found: a class is no module, yet it has attributes.", "importing every part but the last; a class cannot be imported")


@checks(EXISTS, "names that are not there")
def absent(function):
    with package() as pack:
        expect(function, pack, [".Layer.missing", ".core.missing", ".missing", ".core.Layer.construct.deeper"], False, "a last part that does not exist counts as there.", "the last step of the walk")
        expect(function, pack, [".layer", ".LAYER"], False, "a name in another case counts as there: Python distinguishes layer and Layer.", "lower() or a comparison without case")
        expect(function, pack, [".Lay", ".uild"], False, "a part of a name counts as the name.", "`in` on a text: compare whole names, or ask the object")
        expect(function, pack, [".missing.Layer", ".missing.construct", ".core.missing.Layer"], False, "a part in the middle is skipped: the parts must follow from each other.", "what happens when a part is not found: the answer is False at once")
        for name in ("no_such_package_22", "no_such_package_22.Layer"):
            if answer(function, name, name):
                fail("a package that is not installed counts as there.", f"api_exists({name!r}) is True", "the first part")
        expect(function, pack, [".core.hidden", ".Layer.hidden"], False, "a submodule is looked for below something that is no package.", "only modules with a __path__ have submodules")


@checks(EXISTS, "values that look like nothing")
def empty(function):
    with package() as pack:
        expect(function, pack, [".nothing", ".zero"], True, "an attribute whose value is None or 0 counts as absent.", "a test of the value: hasattr asks whether it is there")
        expect(function, pack, [".lazy"], True, "an attribute that a module makes when it is asked (a module's __getattr__) counts as absent.", "dir() and vars(): ask with hasattr")


@checks(EXISTS, "submodules nobody has imported")
def submodules(function):
    with package() as pack:
        expect(function, pack, [".hidden", ".inner.deep"], True, "a submodule that nobody has imported yet counts as absent.", "hasattr sees only imported submodules; importlib.util.find_spec finds the others")
        expect(function, pack, [".hidden.found", ".inner.deep.bottom"], True, "what stands inside a submodule that nobody has imported is not found.", "a package on the way must be opened")
    with package() as pack:
        expect(function, pack, [".short.deep.bottom"], True, "a package under a second name is lost: pack.short is pack.inner, and has the same submodules.", "the path you look for: a module knows its real name as __name__")


@checks(EXISTS, "nothing runs that need not")
def quiet(function):
    with package() as pack:
        calls = importlib.import_module(pack).calls
        for name, loud in [(".Layer", "loud"), (".hidden.found", "loud"), (".missing", "later"), (".loud", "loud"), (".later", "later")]:
            answer(function, pack + name, f"pack{name}")
            if loud in calls:
                own = name == f".{loud}"
                fail(
                    "the last part is imported, and its code runs: finding it is enough." if own else "modules that are not on the way are imported, and their code runs.",
                    f"after api_exists('pack{name}') the module pack.{loud} has run",
                    "find_spec finds a module without running it" if own else "pkgutil or a loop over all submodules",
                )
        if "build" in calls or (answer(function, f"{pack}.build", "pack.build") and "build" in calls):
            fail("what the name stands for is called.", "api_exists('pack.build') has called build()", "ask for the attribute and leave it alone")


@checks(EXISTS, "what is no name")
def no_name(function):
    with package() as pack:
        calls = importlib.import_module(pack).calls
        for bad in (f"{pack}.build()", f"{pack}.Layer.", f".{pack}", f"{pack}..Layer", f"{pack} .Layer", f" {pack}.Layer", f"{pack}.Layer\n", "", f"{pack}.core:Layer"):
            shown = bad.replace(pack, "pack")
            try:
                got = function(bad)
            except ValueError as error:
                if not str(error):
                    fail("the ValueError says nothing.", f"api_exists({shown!r})", "a sentence: what was wrong, what is expected")
                got = None
            except (AttributeError, ImportError, IndexError, SyntaxError, TypeError, NameError) as error:
                fail(f"{shown!r} is no dotted name and ends in {type(error).__name__}; a ValueError should say so.", look="a test of the parts at the beginning: str.isidentifier")
            else:
                fail("a text that is no dotted name is answered; it should raise a ValueError.", f"api_exists({shown!r}) is {got}", "a test of the parts at the beginning: str.isidentifier")
            if "build" in calls:
                fail("the text is run as code: whoever passes a name can make anything happen.", "api_exists('pack.build()') has called build()", "eval and exec")
        for bad in (None, 3, ["mindspore"], b"mindspore"):
            try:
                function(bad)
            except TypeError as error:
                if str(error):
                    continue
            except Exception as error:
                fail(f"a name that is no text ends in {type(error).__name__}; a TypeError should say what is expected.", f"api_exists({bad!r})", "a test with isinstance at the beginning")
            fail("a name that is no text should raise a TypeError with a sentence.", f"api_exists({bad!r})", "a test with isinstance at the beginning")
