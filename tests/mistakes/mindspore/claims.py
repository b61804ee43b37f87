import importlib
import importlib.util
import inspect
import pkgutil
import sys
from functools import reduce
from importlib import util

from tests.mistakes import right, wrong

EXISTS = "mindspore.claims.api_exists"


def parts_of(name):
    if not isinstance(name, str):
        raise TypeError("name must be text such as 'mindspore.nn.Dense'")
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise ValueError(f"{name!r} is no dotted name")
    return parts


def walk(name, has=hasattr, get=getattr, submodule=True, of_real_name=True):
    """The right walk, for the variants below to go wrong with."""
    found = None
    parts = parts_of(name)
    for number, part in enumerate(parts, 1):
        if found is not None and has(found, part):
            found = get(found, part)
            continue
        if found is not None and not (submodule and hasattr(found, "__path__")):
            return False
        path = part if found is None else f"{found.__name__}.{part}" if of_real_name else ".".join(parts[:number])
        try:
            if util.find_spec(path) is None:
                return False
        except ModuleNotFoundError:
            return False
        if number < len(parts):
            found = importlib.import_module(path)
    return True


# there


@wrong(EXISTS, "gives module and must give True or False")
def the_thing_itself(name):
    parts_of(name)
    return importlib.import_module(name)


@wrong(EXISTS, "ends in ModuleNotFoundError")
def every_part_a_module(name):
    parts_of(name)
    return importlib.import_module(name) is not None


@wrong(EXISTS, "what stands inside a class is not found")
def last_part_only_of_a_module(name):
    *modules, last = parts_of(name)
    try:
        module = importlib.import_module(".".join(modules or [last]))
    except ImportError:
        return False
    return not modules or hasattr(module, last) or util.find_spec(name) is not None


@wrong(EXISTS, "not found by its own name")
def needs_a_dot(name):
    return "." in name and walk(name)


@wrong(EXISTS, "an attribute of a package is not found")
def only_modules(name):
    parts_of(name)
    try:
        return util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@wrong(EXISTS, "not found by its own name")
def only_what_is_imported(name):
    first, *rest = parts_of(name)
    found = sys.modules.get(first)
    for part in rest:
        found = getattr(found, part, None)
    return found is not None


# absent


@wrong(EXISTS, "in another case")
def without_case(name):
    first, *rest = parts_of(name)
    if util.find_spec(first) is None:
        return False
    found = importlib.import_module(first)
    for part in rest:
        match = [n for n in dir(found) if n.lower() == part.lower()]
        if not match:
            return False
        found = getattr(found, match[0])
    return True


@wrong(EXISTS, "a part of a name counts")
def part_of_a_name(name):
    first, *rest = parts_of(name)
    if util.find_spec(first) is None:
        return False
    text = str(vars(importlib.import_module(first)))
    return all(part in text for part in rest) or walk(name)


@wrong(EXISTS, "a last part that does not exist")
def last_part_forgotten(name):
    return walk(".".join(parts_of(name)[:-1]) or name)


@wrong(EXISTS, "a part in the middle is skipped")
def skips_what_is_missing(name):
    parts = parts_of(name)
    if util.find_spec(parts[0]) is None:
        return False
    found, here = importlib.import_module(parts[0]), True
    for part in parts[1:]:
        here = hasattr(found, part)
        found = getattr(found, part, found)
    return here or walk(name)


@wrong(EXISTS, "ends in AttributeError")
def raises_for_missing(name):
    first, *rest = parts_of(name)
    if util.find_spec(first) is None:
        return False
    reduce(getattr, rest, importlib.import_module(first))
    return True


@wrong(EXISTS, "ends in ModuleNotFoundError")
def raises_for_a_package(name):
    first, *rest = parts_of(name)
    importlib.import_module(first)
    return walk(name)


@wrong(EXISTS, "not installed counts as there")
def any_package(name):
    first, *rest = parts_of(name)
    return util.find_spec(first) is None or walk(name)


@wrong(EXISTS, "below something that is no package")
def submodule_of_the_package(name):
    first, *rest = parts_of(name)
    return walk(name) or (len(rest) == 2 and walk(f"{first}.{rest[-1]}") and walk(f"{first}.{rest[0]}"))


@wrong(EXISTS, "gives int and must give")
def one_or_zero(name):
    return int(walk(name))


@wrong(EXISTS, "gives NoneType and must give")
def forgets_to_return(name):
    if not walk(name):
        return False


# values that look like nothing


@wrong(EXISTS, "None or 0 counts as absent")
def none_is_absent(name):
    return walk(name, has=lambda found, part: getattr(found, part, None) is not None)


@wrong(EXISTS, "None or 0 counts as absent")
def false_is_absent(name):
    return walk(name, has=lambda found, part: bool(getattr(found, part, False)))


@wrong(EXISTS, "makes when it is asked")
def asks_dir(name):
    return walk(name, has=lambda found, part: part in dir(found))


@wrong(EXISTS, "makes when it is asked")
def asks_vars(name):
    return walk(name, has=lambda found, part: part in vars(found), get=lambda found, part: vars(found)[part])


# submodules


@wrong(EXISTS, "has imported yet counts as absent")
def attributes_only(name):
    return walk(name, submodule=False)


@wrong(EXISTS, "what stands inside a submodule")
def submodule_only_at_the_end(name):
    parts = parts_of(name)
    try:
        return walk(name, submodule=False) or util.find_spec(name) is not None
    except ModuleNotFoundError:
        return len(parts) == 2 and False


@wrong(EXISTS, "under a second name is lost")
def path_as_written(name):
    return walk(name, of_real_name=False)


# nothing runs


@wrong(EXISTS, "the last part is imported")
def imports_the_last(name):
    here = walk(name)
    if here:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            pass
    return here


@wrong(EXISTS, "not on the way are imported")
def imports_everything(name):
    first = parts_of(name)[0]
    if util.find_spec(first) is None:
        return False
    package = importlib.import_module(first)
    for module in pkgutil.walk_packages(getattr(package, "__path__", []), first + "."):
        importlib.import_module(module.name)
    return walk(name)


@wrong(EXISTS, "is called")
def calls_it(name):
    here = walk(name)
    first, *rest = parts_of(name)
    if here and rest == ["build"]:
        importlib.import_module(first).build()
    return here


# no name


@wrong(EXISTS, "no dotted name is answered")
def drops_what_is_no_name(name):
    if not isinstance(name, str):
        raise TypeError("name must be text")
    return walk(".".join(p for p in name.split(".") if p.isidentifier()))


@wrong(EXISTS, "no dotted name is answered")
def false_for_no_name(name):
    if not isinstance(name, str):
        raise TypeError("name must be text")
    return all(part.isidentifier() for part in name.split(".")) and walk(name)


@wrong(EXISTS, "run as code")
def runs_the_text(name):
    if not isinstance(name, str):
        raise TypeError("name must be text")
    if "(" in name:
        package = importlib.import_module(name.partition(".")[0])
        eval(name.partition(".")[2], vars(package))
    return walk(name)


@wrong(EXISTS, "no dotted name is answered")
def strips_spaces(name):
    return walk(name.strip() if isinstance(name, str) else name)


@wrong(EXISTS, "a last part that does not exist")
def two_parts_deep(name):
    return walk(".".join(parts_of(name)[:4]))


@wrong(EXISTS, "no text ends in AttributeError")
def no_test_of_type(name):
    if not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"{name!r} is no dotted name")
    return walk(name)


@wrong(EXISTS, "should raise a TypeError")
def takes_anything(name):
    return walk(str(name) if not isinstance(name, str) else name) if isinstance(name, str) else False


@wrong(EXISTS, "says nothing")
def silent_error(name):
    if isinstance(name, str) and not all(part.isidentifier() for part in name.split(".")):
        raise ValueError
    return walk(name)


# right in another style


@right(EXISTS)
def as_a_walk(name):
    return walk(name)


@right(EXISTS)
def recursive(name):
    def inside(found, rest):
        if not rest:
            return True
        if hasattr(found, rest[0]):
            return inside(getattr(found, rest[0]), rest[1:])
        if not inspect.ismodule(found) or not hasattr(found, "__path__"):
            return False
        path = f"{found.__name__}.{rest[0]}"
        if importlib.util.find_spec(path) is None:
            return False
        return len(rest) == 1 or inside(importlib.import_module(path), rest[1:])

    parts = parts_of(name)
    if importlib.util.find_spec(parts[0]) is None:
        return False
    return len(parts) == 1 or inside(importlib.import_module(parts[0]), parts[1:])


@right(EXISTS)
def with_try(name):
    parts = parts_of(name)
    if util.find_spec(parts[0]) is None:
        return False
    if len(parts) == 1:
        return True
    found = importlib.import_module(parts[0])
    for part in parts[1:-1]:
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(f"{found.__name__}.{part}")
            except (AttributeError, ImportError):
                return False
    if hasattr(found, parts[-1]):
        return True
    try:
        return util.find_spec(f"{found.__name__}.{parts[-1]}") is not None
    except (AttributeError, ImportError):
        return False


@right(EXISTS)
def with_a_sentinel(name):
    missing = object()
    parts = parts_of(name)
    found = missing
    for number, part in enumerate(parts):
        value = getattr(found, part, missing) if number else missing
        if value is not missing:
            found = value
            continue
        if number and getattr(found, "__path__", None) is None:
            return False
        where = ".".join([found.__name__, part]) if number else part
        if not util.find_spec(where):
            return False
        found = missing if number == len(parts) - 1 else importlib.import_module(where)
    return True


@right(EXISTS)
def with_pkgutil(name):
    parts = parts_of(name)
    if util.find_spec(parts[0]) is None:
        return False
    found = importlib.import_module(parts[0]) if len(parts) > 1 else None
    for number, part in enumerate(parts[1:], 1):
        if hasattr(found, part):
            found = getattr(found, part)
        elif part not in [m.name for m in pkgutil.iter_modules(getattr(found, "__path__", []))]:
            return False
        elif number < len(parts) - 1:
            found = importlib.import_module(f"{found.__name__}.{part}")
    return True
