#!/usr/bin/env python3
"""Writes the training text and the held-out text of the model: the King James Bible, public domain, as
Debian's package bible-kjv-text has it (`apt-get install bible-kjv bible-kjv-text`).

    make_text.py TRAIN.txt HELD_OUT.txt

One verse a line, without its number, ASCII. Held out are whole books, of several kinds of text, so that no
line of them stands near one that was trained on.
"""

import pathlib
import re
import subprocess
import sys

HELD_OUT_BOOKS = ("Ruth", "Est", "Jonah", "Mark", "Phmn")  # story, court tale, prophet, gospel, letter


def verses():
    printed = subprocess.run(["bible", "-f", "Ge1:1-Re22:21"], check=True, capture_output=True, text=True)
    for line in printed.stdout.splitlines():
        reference, _, text = line.partition(" ")
        book = re.fullmatch(r"(\d?[A-Za-z]+?)\d+:\d+", reference)
        if book is None:
            raise SystemExit(f"make_text.py: 'bible -f' printed a line without a verse number: {line!r}")
        yield book.group(1), text.strip()


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    train, held_out, seen = [], [], set()
    for book, text in verses():
        seen.add(book)
        (held_out if book in HELD_OUT_BOOKS else train).append(text + "\n")
    missing = set(HELD_OUT_BOOKS) - seen
    if missing:
        raise SystemExit(f"make_text.py: the package has no book {sorted(missing)}; it has {sorted(seen)}")
    for path, lines in ((sys.argv[1], train), (sys.argv[2], held_out)):
        data = "".join(lines).encode("ascii")
        pathlib.Path(path).write_bytes(data)
        print(f"{path}: {len(data)} bytes, {len(lines)} verses")


if __name__ == "__main__":
    main()
