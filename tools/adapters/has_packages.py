"""Asks the Python that runs this file for the packages of FOLDER/requirements.txt and requirements-alone.txt, by name.

    has_packages.py FOLDER

Prints those that it lacks. Exit codes: 0 it has all; 1 it lacks some; 2 wrong usage.
"""
import importlib.metadata
import pathlib
import re
import sys


def lacking(folder):
    files = sorted(pathlib.Path(folder).glob("requirements*.txt"))
    lines = [line for file in files for line in file.read_text().splitlines()]
    names = [re.match(r"[\w.-]*", line).group() for line in lines]  # before extras, versions, comments
    missing = []
    for name in filter(None, names):
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return missing


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (pathlib.Path(sys.argv[1]) / "requirements.txt").is_file():
        print("usage: has_packages.py FOLDER, which has requirements.txt", file=sys.stderr)
        sys.exit(2)
    missing = lacking(sys.argv[1])
    print(" ".join(missing))
    sys.exit(1 if missing else 0)
