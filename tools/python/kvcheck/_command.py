"""The command kvcheck, which the wheel brings along."""
import os
import pathlib
import sys


def program():
    return pathlib.Path(__file__).with_name("bin") / "kvcheck"


def main():
    if sys.argv[1:2] == ["convert"]:
        from . import _convert

        sys.exit(_convert.main(sys.argv[2:]))
    path = str(program())
    # Adapters of --impl FILE.py run in this Python, unless KVCHECK_PYTHON names another one.
    environment = {**os.environ, "KVCHECK_OWN_PYTHON": sys.executable}
    os.execve(path, ["kvcheck", *sys.argv[1:]], environment)
