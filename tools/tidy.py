#!/usr/bin/env python3
"""clang-tidy on files of a build directory, several files of a room read as one.

  tools/tidy.py BUILD [-j JOBS] [FILE...]

Most of the time of clang-tidy goes into the headers that a file includes, so files compiled with
the same options are pasted together, and each finding is given back to its file and line. Pasted,
not included: the static analyzer reads function bodies of the main file only. Where names of two
files collide, each file of that group is read by itself. Exit code 1 if anything is found.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

GROUP = 8
ROOT = pathlib.Path(__file__).resolve().parent.parent


def options_of(entry):
    """The compile command without what names the file and its object."""
    words = shlex.split(entry["command"])
    out = words.index("-o")
    return tuple(words[:out] + words[out + 2 : words.index("-c")])


def stands_alone(text):
    """A file that Highway compiles by including it again, or that tests for macros of its own."""
    return "HWY_TARGET_INCLUDE" in text or re.search(r"^\s*#\s*(define|undef)\b", text, re.M)


def groups_of(entries):
    """Lists of files that may be read as one, each with the options it is compiled with."""
    rooms, groups = {}, []
    for path, entry in entries.items():
        options = options_of(entry)
        if stands_alone(path.read_text()):
            groups.append(([path], options))
        else:
            rooms.setdefault((path.parent, options), []).append(path)
    for (_, options), paths in rooms.items():
        for first in range(0, len(paths), GROUP):
            groups.append((paths[first : first + GROUP], options))
    return sorted(groups, key=lambda group: -len(group[0]))


def paste(paths, target):
    """Writes one file; line numbers of its own follow from the counts that are returned."""
    lines, starts = [], []
    for path in paths:
        starts.append(len(lines))
        lines += path.read_text().split("\n")
    target.write_text("\n".join(lines))
    return starts


def own_line(starts, paths, line):
    index = max(i for i, start in enumerate(starts) if start < line)
    return paths[index].relative_to(ROOT), line - starts[index]


def run_tidy(path, options):
    command = ["clang-tidy-19", "--quiet", f"--config-file={ROOT / '.clang-tidy'}", str(path)]
    done = subprocess.run(
        command + ["--", *options[1:]], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return done.returncode, done.stdout


def own_findings(text):
    """Without those that lie in headers of the system: they are nobody's here to mend."""
    findings = re.split(r"^(?=\S+:\d+:\d+: (?:error|warning): )", text, flags=re.M)
    return "".join(finding for finding in findings if not finding.startswith("/usr/")).strip()


def read_group(number, paths, options, folder):
    """Findings of a group as text; empty where there are none."""
    if len(paths) > 1:
        target = folder / f"group_{number}.cc"
        starts = paste(paths, target)
        code, text = run_tidy(target, options)
        if "[clang-diagnostic-error]" not in text:
            place = re.compile(re.escape(str(target)) + r":(\d+)")

            def of_file(match):
                path, line = own_line(starts, paths, int(match.group(1)))
                return f"{path}:{line}"

            return own_findings(place.sub(of_file, text)) if code else ""
    findings = [run_tidy(path, options) for path in paths]
    return own_findings("".join(text for code, text in findings if code))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    arguments = parser.parse_intermixed_args()

    database = json.loads((arguments.build / "compile_commands.json").read_text())
    known = {pathlib.Path(entry["file"]).resolve(): entry for entry in database}
    files = [path.resolve() for path in arguments.files]
    missing = [str(path) for path in files if path not in known]
    if missing:
        sys.exit(f"tidy: {arguments.build} does not compile {', '.join(missing)}")

    folder = arguments.build.resolve() / "tidy"
    folder.mkdir(exist_ok=True)
    groups = groups_of({path: known[path] for path in files})
    found = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        asked = [pool.submit(read_group, i, *group, folder) for i, group in enumerate(groups)]
        for answer in concurrent.futures.as_completed(asked):
            if answer.result():
                found += 1
                print(answer.result(), flush=True)
    if found:
        sys.exit(f"clang-tidy: findings above, in {found} groups of {len(files)} files")
    print(f"clang-tidy: nothing found in {len(files)} files, read in {len(groups)} groups")


if __name__ == "__main__":
    main()
