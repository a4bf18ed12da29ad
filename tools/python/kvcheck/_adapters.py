"""Adapters that live in a test's own module. The package kvcheck_adapter, from which they derive, comes with the wheel.

As a program: python -m kvcheck._adapters FILE CLASS [OPTION...] serves a class of a file on stdin and stdout.
"""
import functools
import importlib.util
import inspect
import os
import pathlib
import shlex
import sys

from ._errors import Error

__tracebackhide__ = True


def command_of(adapter, arguments, python):
    """The command line that serves an adapter in a process of its own."""
    if isinstance(adapter, str | os.PathLike):
        file, name = pathlib.Path(adapter), None
    else:
        if not inspect.isclass(adapter):
            raise Error(f"{adapter!r} is no class and no file", "usage", "adapter")
        if "<locals>" in adapter.__qualname__:
            raise Error(f"the class {adapter.__qualname__} is made by a function: another process cannot import it; "
                        "put it at the top of a module", "usage", "adapter")
        file, name = pathlib.Path(inspect.getfile(adapter)), adapter.__qualname__
    if not file.is_file():
        raise Error(f"there is no file {file}", "usage", "adapter")
    words = [python, "-m", "kvcheck._adapters", str(file.resolve()), name or "-", *arguments]
    return shlex.join(words)


def _class_of(path, name):
    path = pathlib.Path(path)
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(f"kvcheck_adapter_file_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return functools.reduce(getattr, name.split("."), module)


def main(arguments):
    file, name, *options = arguments
    from kvcheck_adapter import __main__ as serve
    if name != "-":
        serve.load = lambda path: _class_of(path, name)
    serve.main([file, *options])


if __name__ == "__main__":
    main(sys.argv[1:])
