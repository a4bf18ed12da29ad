#!/usr/bin/env python3
"""Holds the table of rooms in ARCHITECTURE.md to what check_includes.py allows.

usage: rooms_table.py ROOT [--update]

Between <!-- rooms --> and <!-- end of rooms --> a line has a room, its idea and what it may include. The idea is the page's; the
rooms, their order and the last column are check_includes.py's. --update writes them; a new room's idea is "?", which is wrong.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
import check_includes  # noqa: E402

BLOCK = re.compile(r"(<!-- rooms -->\n)(.*?)(<!-- end of rooms -->)", re.S)
ROW = re.compile(r"^\| `([\w/]+)` \| (.*?) \| [^|]* \|$", re.M)
NAMES = {"fmt/*": None, "boost/multiprecision/*": "Boost", "boost/*": "Boost", "Eigen/*": "Eigen", "hdf5*.h": "HDF5", "H5*": "HDF5",
         "hwy/*": "Highway", "openssl/*": "OpenSSL", "sqlite3.h": "SQLite", "nlohmann/*": "nlohmann-json", "pugixml.hpp": "pugixml",
         "msgpack*": "msgpack-cxx", "nanobind/*": "nanobind", "CLI/*": "CLI11", "benchmark/*": "Google Benchmark", "gtest/*": "GoogleTest", "gmock/*": "GoogleTest",
         "rapidcheck*": "RapidCheck"}


def dependencies(room):
    """Those that files of the room may use, by name: of a line for this room, not for one that it lies in."""
    names = []
    for header, users in check_includes.DEPENDENCIES:
        name = NAMES.get(header)  # none: of the standard library, or used everywhere
        if name and name not in names and any(check_includes.room_of(user) == room for user in users):
            names.append(name)
    return names if len(names) <= 6 else ["every dependency"]


def includes(room):
    rooms = check_includes.ROOMS
    allowed = set(rooms[room]) - {room}
    if not allowed:
        words = ["no other room"]
    else:
        # What is allowed of a family of rooms as a whole is named by the family.
        words = []
        for family in dict.fromkeys(name.split("/")[0] for name in rooms):
            members = {name for name in rooms if name.split("/")[0] == family and name not in (room, "tools/adapters/cpp", "tools/python")}
            if members and members <= allowed and len(members) > 1:
                words.append(f"all of {family}" if family != room.split("/")[0] else f"the rest of {family}")
                allowed -= members
            else:
                shown = [name for name in rooms if name in allowed and name.split("/")[0] == family]
                words += [name.split("/")[-1] if family == "reference" else name for name in shown]
                allowed -= set(shown)
    text = ", ".join(words)
    others = dependencies(room)
    return f"{text}; {', '.join(others)}" if others else text


def table(ideas):
    lines = ["| room | idea | may include |", "|---|---|---|"]
    lines += [f"| `{room}` | {ideas.get(room, '?')} | {includes(room)} |" for room in check_includes.ROOMS]
    return "\n".join(lines) + "\n"


def main():
    root = pathlib.Path(sys.argv[1])
    page = root / "ARCHITECTURE.md"
    text = page.read_text()
    block = BLOCK.search(text)
    if not block:
        sys.exit(f"{page}: no table of rooms")
    made = table(dict(ROW.findall(block[2])))
    if "--update" in sys.argv:
        page.write_text(text[:block.start(2)] + made + text[block.end(2):])
    elif made != block[2]:
        sys.exit(f"{page}: the table of rooms is not that of check_includes.py; run rooms_table.py with --update:\n{made}")
    if "| ? |" in made:
        sys.exit(f"{page}: a room has no idea yet")
    for room in check_includes.ROOMS:
        if not (root / room).is_dir():
            sys.exit(f"check_includes.py: no folder {root / room}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
