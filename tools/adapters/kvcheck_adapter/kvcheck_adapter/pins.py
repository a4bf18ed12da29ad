"""What is judged, beside what the adapter was written for: versions other than those that requirements.txt pins, and
checkouts, of which a version says little.
"""
import importlib.metadata
import json
import pathlib
import re

CARRIERS = {"numpy", "msgpack"}  # they carry the conversation and are not judged


def origin_of(name):
    """Where a package was installed from, when that is no index: "" otherwise."""
    text = importlib.metadata.distribution(name).read_text("direct_url.json")
    if not text:
        return ""
    told = json.loads(text)
    commit = told.get("vcs_info", {}).get("commit_id", "")
    return told.get("url", "").removeprefix("file://") + (f" at {commit[:12]}" if commit else "")


def warnings_of(folder):
    """One text for each package of folder/requirements.txt and requirements-alone.txt that is not what is pinned there."""
    files = sorted(pathlib.Path(folder).glob("requirements*.txt"))
    found = []
    for line in (line for file in files for line in file.read_text().splitlines()):
        pinned = re.fullmatch(r"([\w.-]+)(?:\[.*\])?==([\w.+!-]+)", line.strip())
        if not pinned or pinned[1] in CARRIERS:
            continue
        name, version = pinned.groups()
        try:
            there, origin = importlib.metadata.version(name), origin_of(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if there.partition("+")[0] != version or origin:
            found.append(f"{name} {there}{f' of {origin}' if origin else ''} is judged, {version} is pinned")
    return found
