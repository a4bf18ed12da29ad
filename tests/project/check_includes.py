#!/usr/bin/env python3
"""Checks every #include of the sources against the table of rooms (ARCHITECTURE.md).

    check_includes.py [ROOT]

A room is a folder; a file belongs to the room with the longest matching path. Quoted includes name
project files from the repository root; angle brackets name the standard library, the system or a
dependency, and each dependency has its declared users. Exit 0: no line breaks the table; 1: some do
(one line each on stdout); 2: nothing was found to check.
"""

import fnmatch
import os
import re
import sys

REFERENCE = {
    "reference/spec",
    "reference/numerics",
    "reference/data",
    "reference/formats",
    "reference/cache",
    "reference/attention",
    "reference/judge",
    "reference/model",
    "reference/trace",
    "reference/prefix",
}
# In an order in which each includes only those before it.
TOOLS = [
    "tools/process",
    "tools/report",
    "tools/faults",
    "tools/prefix_disk",
    "tools/corridor",
    "tools/compare",
    "tools/measure",
    "tools/flashinfer",
    "tools/agree",
    "tools/campaign",
    "tools/kvcheck",
]
ALL_BUT_TESTS = REFERENCE | {"optimized", "golden", "fuzz", "fuzz/targets"} | set(TOOLS)

# room: rooms it may include, besides itself.
ROOMS = {
    "reference/spec": set(),
    "reference/numerics": {"reference/spec"},
    "reference/data": {"reference/spec", "reference/numerics"},
    "reference/formats": {"reference/spec", "reference/numerics", "reference/data"},
    "reference/cache": {
        "reference/spec", "reference/numerics", "reference/formats", "reference/data"},
    "reference/attention": {
        "reference/spec", "reference/numerics", "reference/formats", "reference/data"},
    "reference/judge": {"reference/spec", "reference/numerics"},
    "reference/model": {
        "reference/spec", "reference/numerics", "reference/formats", "reference/data",
        "reference/attention"},
    "reference/trace": {
        "reference/spec", "reference/data", "reference/cache", "reference/attention",
        "reference/judge"},
    "reference/prefix": {
        "reference/spec", "reference/numerics", "reference/data", "reference/formats",
        "reference/cache", "reference/judge"},
    "optimized": {"reference/spec"},
    "golden": {"reference/spec", "reference/numerics"},
    "fuzz": set(REFERENCE),
    "fuzz/targets": ALL_BUT_TESTS,
    "tools/process": {"reference/spec", "reference/judge", "reference/trace", "golden"},
    "tools/report": {"reference/spec", "reference/judge"},
    "tools/faults": {
        "reference/spec", "reference/numerics", "reference/formats", "reference/cache",
        "reference/attention", "reference/prefix"},
    "tools/prefix_disk": {"reference/spec", "optimized", "golden"},
    "tools/corridor": REFERENCE | {
        "optimized", "golden", "tools/process", "tools/report", "tools/faults",
        "tools/prefix_disk"},
    "tools/compare": REFERENCE | {
        "optimized", "golden", "tools/process", "tools/report", "tools/corridor"},
    "tools/measure": {
        "reference/spec", "reference/numerics", "reference/data", "reference/formats",
        "reference/attention", "reference/judge", "optimized", "golden", "tools/report",
        "tools/corridor"},
    "tools/agree": {
        "reference/spec", "reference/numerics", "reference/data", "reference/formats",
        "reference/cache", "reference/attention", "reference/judge", "reference/model",
        "optimized", "golden", "tools/report", "tools/prefix_disk", "tools/corridor",
        "tools/measure"},
    "tools/flashinfer": {
        "reference/spec", "reference/numerics", "reference/judge", "golden", "tools/report",
        "tools/corridor"},
    "tools/campaign": REFERENCE | {
        "fuzz", "golden", "tools/process", "tools/report", "tools/faults", "tools/corridor",
        "tools/compare"},
    "tools/kvcheck": {"reference/spec", "reference/data", "reference/judge", "golden"}
                     | set(TOOLS[:-1]),
    "tools/python": {"reference/spec", "reference/data", "reference/judge", "tools/report", "tools/corridor"},
    # What a third party copies: nothing of kvcheck.
    "tools/adapters/cpp": set(),
    # Nobody may include these two; they see everything but each other.
    "tests": ALL_BUT_TESTS | {"tools/adapters/cpp"},
    "bench": ALL_BUT_TESTS,
}

# dependency: (pattern of its headers, patterns of the files that may use it).
TESTS = ["tests/*", "bench/*"]
ORACLE_BODY = "reference/numerics/oracle*-inl.h"
ORACLE_USERS = "reference/numerics/oracle*.cc"
DEPENDENCIES = [
    ("fmt/*", ["*"]),
    ("boost/multiprecision/*", [ORACLE_USERS, ORACLE_BODY] + TESTS),
    ("boost/*", ["reference/numerics/*"] + TESTS),
    ("Eigen/*", ["reference/numerics/*"] + TESTS),
    ("hdf5*.h", ["golden/*"] + TESTS),
    ("H5*", ["golden/*"] + TESTS),
    ("hwy/*", ["optimized/*"] + TESTS),
    ("openssl/*", ["golden/*"] + TESTS),
    ("sqlite3.h", ["tools/prefix_disk/*"] + TESTS),
    ("nlohmann/*", ["golden/*", "tools/report/*", "tools/campaign/*", "tools/measure/*",
                      "tools/agree/*", "tools/flashinfer/*", "tools/compare/*"] + TESTS),
    ("pugixml.hpp", ["tools/report/*", "tools/measure/*"] + TESTS),
    ("msgpack*", ["tools/adapters/cpp/*"]),
    ("nanobind/*", ["tools/python/*"]),
    # Heavy, and of the command line alone.
    ("CLI/*", ["tools/kvcheck/commands.h", "tools/kvcheck/common_options.*",
               "tools/kvcheck/command_*.cc", "tools/kvcheck/tool_main.cc"] + TESTS),
    # No library prints.
    ("iostream", ["tools/kvcheck/*", "tools/adapters/cpp/*"] + TESTS),
    ("benchmark/*", ["bench/*"]),
    ("gtest/*", TESTS),
    ("gmock/*", TESTS),
    ("rapidcheck*", ["fuzz/*"] + TESTS),
    # What a forked child has to forget, standard C++ does not know.
    ("pthread.h", ["reference/judge/kept_threads.cc", "optimized/*"] + TESTS),
]

SOURCES = (".h", ".cc")
SKIPPED = {"build", "__pycache__"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def room_of(path):
    """The room with the longest path that holds this file, or None."""
    rooms = [room for room in ROOMS if path.startswith(room + "/")]
    return max(rooms, key=len) if rooms else None


def source_files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED and not f.startswith("."))
        # A virtual environment brings the headers of its libraries.
        if "pyvenv.cfg" in names:
            folders[:] = []
        for name in sorted(names):
            if name.endswith(SOURCES):
                yield os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/")


def quoted_fault(root, path, room, header):
    # Tests have no include root: a helper stands beside its users and is named alone. So do files
    # that others copy.
    beside = os.path.join(root, os.path.dirname(path), header)
    if room in ("tests", "bench", "tools/adapters/cpp") and "/" not in header and os.path.exists(beside):
        return None
    target = room_of(header)
    if target is None:
        return f'"{header}" is no path from the repository root into a room'
    if not os.path.exists(os.path.join(root, header)):
        return f'"{header}" does not exist'
    if target != room and target not in ROOMS[room]:
        return f'room {room} may not include room {target} ("{header}")'
    # Through this header Boost.Multiprecision would reach files that may not include it.
    if fnmatch.fnmatchcase(header, ORACLE_BODY) and not fnmatch.fnmatchcase(path, ORACLE_USERS):
        return f'"{header}" belongs to {ORACLE_USERS}: include the plain header beside it'
    return None


def bracket_fault(path, room, header):
    for pattern, users in DEPENDENCIES:
        if fnmatch.fnmatchcase(header, pattern):
            if any(fnmatch.fnmatchcase(path, user) for user in users):
                return None
            return f"<{header}> belongs to {', '.join(users)}"
    # The reference is portable C++: no header of one system or one instruction set.
    if room in REFERENCE and ("/" in header or "." in header):
        return f"<{header}> is not of the C++ standard library, and room {room} uses nothing else"
    if room_of(header) is not None:
        return f'<{header}> is a file of the project: write "{header}"'
    return None


def check(root):
    """Returns (files read, includes read, faults as 'path:line: reason')."""
    files = includes = 0
    faults = []
    for path in source_files(root):
        files += 1
        room = room_of(path)
        if room is None:
            faults.append(f"{path}:1: stands in no room of the table")
            continue
        with open(os.path.join(root, path), encoding="utf-8") as source:
            for number, line in enumerate(source, 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                includes += 1
                header = match.group(2)
                fault = (quoted_fault(root, path, room, header) if match.group(1) == '"'
                         else bracket_fault(path, room, header))
                if fault:
                    faults.append(f"{path}:{number}: {fault}")
    return files, includes, faults


def main(arguments):
    root = arguments[1] if len(arguments) > 1 else os.path.join(os.path.dirname(__file__), "../..")
    files, includes, faults = check(root)
    for fault in faults:
        print(fault)
    print(f"{files} files, {includes} includes, {len(faults)} against the table")
    if includes == 0:
        return 2
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
