"""Look a name up instead of believing it."""
import importlib
import inspect
from importlib import util


def api_exists(name):
    """Is there such a name in what is installed? "mindspore.nn.Dense" -> True.

    Every part is an attribute of the one before it or, where there is no such attribute, a submodule. Only packages that
    must be opened are imported; the last part is not, and nothing is called.

    TypeError if name is no text, ValueError if it is not names joined by dots.
    """
    if not isinstance(name, str):
        raise TypeError(f"name is {type(name).__name__} and must be text such as 'mindspore.nn.Dense'")
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        raise ValueError(f"{name!r} is no dotted name: give names joined by dots, without brackets or spaces")
    found = None
    for number, part in enumerate(parts, 1):
        if found is not None and hasattr(found, part):
            found = getattr(found, part)
            continue
        if found is not None and not (inspect.ismodule(found) and hasattr(found, "__path__")):
            return False                                  # only packages have submodules
        path = part if found is None else f"{found.__name__}.{part}"
        if util.find_spec(path) is None:
            return False
        if number < len(parts):
            found = importlib.import_module(path)
    return True
