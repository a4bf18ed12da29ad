"""Runs the programs of NAME/findings/ and compares what they print with what NAME/FINDINGS.md and NAME/EDGES.md say.

    tools/adapters/check_findings.py NAME [PROGRAM...]     NAME: a folder beside this file

Runs them with the interpreter that KVCHECK_PYTHON names, where it has the packages of requirements.txt, and no other where it
is set; else with the folder's venv. Those of findings/gpu/ need a GPU and run when they are named (gpu/PROGRAM); otherwise only that they and
their sections are there is checked.
Exit codes: 0 every program printed what stands there; 1 one did not, or a program or section has no counterpart;
2 wrong usage, or no environment.
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

from finding_pages import ADAPTERS, sections

LIMIT_S = 600
# Folders that run in the environment of another one where they have none of their own.
SHARED = {"mlx_vlm": "mlx_prefix", "transformers_paged": "transformers", "transformers_quantized": "transformers"}


def environment(folder):
    """The Python that runs what stands in the folder, or None."""
    named = os.environ.get("KVCHECK_PYTHON")
    if not named:
        homes = [folder, ADAPTERS / SHARED.get(folder.name, folder.name)]
        return next((str(home / "venv/bin/python") for home in homes if (home / "venv/bin/python").exists()), None)
    asks = [named, str(ADAPTERS / "has_packages.py"), str(folder)]
    try:
        has = subprocess.run(asks, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
    except OSError:
        has = False
    return named if has else None


def quoted(folder):
    """({program: what the pages say that it prints}, titles of sections that quote none)."""
    found, without = {}, []
    for section in sections(folder.name):
        found.update(section.programs)
        if not section.programs:
            without.append(f"'{section.title}' of {section.page}")
    return found, without


def printed(python, program):
    done = subprocess.run([python, str(program)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=LIMIT_S)
    return done.stdout + (done.stderr if done.returncode else "")


def main(arguments):
    folder = ADAPTERS / arguments[0] if arguments else None
    if folder is None or not (folder / "FINDINGS.md").is_file():
        print("usage: check_findings.py NAME [PROGRAM...], NAME a folder with FINDINGS.md", file=sys.stderr)
        return 2
    python = environment(folder)
    if python is None:
        print(f"{folder.name}: no environment: tools/adapters/make_venv.sh {folder.name}", file=sys.stderr)
        return 2
    said, without = quoted(folder)
    home = folder / "findings"
    programs = {path.relative_to(home).with_suffix("").as_posix(): path for path in home.rglob("*.py")
                if not path.name.startswith("_")}  # what several import
    failures = [f"{title} quotes no program" for title in without]
    failures += [f"findings/{name}.py stands in no section of FINDINGS.md or EDGES.md" for name in sorted(set(programs) - set(said))]
    failures += [f"a section names findings/{name}.py, which is not there" for name in sorted(set(said) - set(programs))]
    unknown = set(arguments[1:]) - set(programs)
    failures += [f"there is no findings/{name}.py" for name in sorted(unknown)]
    alone = {name for name in programs if not name.startswith("gpu/")}
    chosen = sorted(set(arguments[1:] or alone) & set(programs) & set(said))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, text in zip(chosen, pool.map(lambda name: printed(python, programs[name]), chosen)):
            if text != said[name]:
                failures.append(f"findings/{name}.py prints\n{text}its section says\n{said[name]}")
    print("\n".join([*failures, f"{len(chosen)} programs run, {len(failures)} failures"]))
    return 1 if failures or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
