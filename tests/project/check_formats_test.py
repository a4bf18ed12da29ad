#!/usr/bin/env python3
"""Proves that check_formats.py can fail: a clean tree passes, and each way to ask for a family is found."""

import contextlib
import io
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import check_formats

CLEAN = {
    "reference/spec/rotated_format.h": "using UnrotatedFormat = std::variant<PlainFormat, MadeUpFormat>;\n",
    "reference/formats/made_up_rows.cc": "auto& own = std::get<MadeUpFormat>(format);\n",
    "optimized/formats/plain_rows.cc": "auto* own = std::get_if<PlainFormat>(&format);\n",
    "tools/x.cc": "std::get<CodecCase>(c); std::get<UnknownFormat>(y);\n",
}
BROKEN = [
    ("tools/x.cc", "std::get<MadeUpFormat>(format)"),
    ("fuzz/x.cc", "auto* plain = std::get_if<PlainFormat>(&format);"),
    ("golden/x.h", "std::holds_alternative<kvcheck::MadeUpFormat>(format)"),
    ("bench/x.cc", "get<PlainFormat>(format)"),
    ("reference/formats/plain_rows.cc", "std::get<MadeUpFormat>(format)"),  # of another family
]


def run(files):
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
            code = check_formats.main(["check_formats.py", root])
        return code, out.getvalue()


def main():
    failed = 0
    if run(CLEAN) != (0, ""):
        print("a clean tree:", run(CLEAN))
        failed += 1
    for path, line in BROKEN:
        code, out = run({**CLEAN, path: line + "\n"})
        if code != 1 or not out.startswith(path + ":1:"):
            print(f"not found: {path}: {line}: {code} {out}")
            failed += 1
    if run({})[0] != 2:
        print("an empty tree is none")
        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
