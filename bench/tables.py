#!/usr/bin/env python3
"""Writes the tables of the pages from the data in bench/results/*.csv, or checks that they are what the data make.

usage: tables.py [--check] [PAGE...]       default: every page below bench/
       tables.py add FILE RUN < PRINTED    appends the Markdown tables that a program printed to results/FILE.csv, as rows of
                                           RUN, which has to stand in results/runs.csv (machine, date, commit, command)

A table of a page stands between two marks, of which the first says what is shown:
  <!-- table: FILE COLUMN=VALUE... [columns=A,B...] -->              rows of FILE in which each COLUMN is VALUE (or V|W)
  <!-- table: FILE COLUMN=VALUE... rows=A,B across=C,D show=E -->    a row for each A and B, a column for each C and D, in it E;
                                                                     with bold=F bold where E meets the limit in F (">= 2")
  <!-- end of table -->
{FILE; COLUMN=VALUE; ...; SHOWN[; FORMAT]} in a cell is the cell SHOWN of the only row that fits, by Python's format.
"""
import csv
import io
import pathlib
import re
import shlex
import sys

BENCH = pathlib.Path(__file__).resolve().parent
RESULTS = BENCH / "results"
BLOCK = re.compile(r"(<!-- table: (?P<what>.*?) -->\n).*?(<!-- end of table -->)", re.S)
REFERENCE = re.compile(r"\{([^{}]*)\}")
WORDS = ("columns", "rows", "across", "show", "bold")


class Wrong(Exception):
    """A mark or a file that says what cannot be."""


def read(name):
    path = RESULTS / f"{name}.csv"
    if not path.is_file():
        raise Wrong(f"no file {path}")
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    for number, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise Wrong(f"{path}:{number}: not as many cells as the first line")
    return rows


def chosen(name, conditions):
    rows = read(name)
    for column, value in conditions:
        if column not in rows[0]:
            raise Wrong(f"{name}.csv has no column '{column}': {', '.join(rows[0])}")
        rows = [row for row in rows if row[column] in value.split("|")]
    if not rows:
        raise Wrong(f"no row of {name}.csv has {conditions}")
    return rows


def cell_of(row, column):
    if column not in row:
        raise Wrong(f"no column '{column}': {', '.join(row)}")
    return row[column]


def number(text):
    return int(text) if re.fullmatch(r"-?\d+", text) else float(text)


def resolved(text):
    def value(match):
        name, *rest = [part.strip() for part in match[1].split(";")]
        conditions = [tuple(part.split("=", 1)) for part in rest if "=" in part]
        shown, *form = [part for part in rest if "=" not in part]
        rows = chosen(name, conditions)
        if len(rows) != 1:
            raise Wrong(f"{match[0]}: {len(rows)} rows fit")
        cell = cell_of(rows[0], shown)
        return format(number(cell), form[0]) if form else cell
    return REFERENCE.sub(value, text)


def meets(value, limit):
    sense, _, bound = limit.partition(" ")
    return {">=": float.__ge__, "<=": float.__le__}[sense](float(value), float(bound)) if bound else False


def markdown(header, rows):
    lines = [f"| {' | '.join(cells)} |\n" for cells in [header, *rows]]
    return "".join([lines[0], "|---" * len(header) + "|\n", *lines[1:]])


def table(what):
    name, *terms = shlex.split(what)
    pairs = [tuple(term.split("=", 1)) for term in terms]
    words = dict(pair for pair in pairs if pair[0] in WORDS)
    rows = chosen(name, [pair for pair in pairs if pair[0] not in WORDS])
    if "across" not in words:
        columns = words["columns"].split(",") if "columns" in words else [column for column in rows[0] if column != "run"]
        return markdown(columns, [[resolved(cell_of(row, column)) for column in columns] for row in rows])
    keys, across = words["rows"].split(","), words["across"].split(",")
    head_of = lambda row: ", ".join(cell_of(row, column) for column in across)  # noqa: E731
    heads = list(dict.fromkeys(map(head_of, rows)))
    lines = {}
    for row in rows:
        line = lines.setdefault(tuple(cell_of(row, key) for key in keys), {})
        if head_of(row) in line:
            raise Wrong(f"two rows of {name}.csv for {head_of(row)} of {dict(row)}")
        shown = cell_of(row, words["show"])
        line[head_of(row)] = f"**{shown}**" if "bold" in words and meets(shown, cell_of(row, words["bold"])) else shown
    return markdown([*keys, *heads], [[*key, *(line.get(head, "") for head in heads)] for key, line in lines.items()])


def written(page):
    """The page as the data make it."""
    text = page.read_text()
    if text.count("<!-- table: ") != len(BLOCK.findall(text)):
        raise Wrong(f"{page}: a table has no end")
    return BLOCK.sub(lambda block: block[1] + table(block["what"]) + block[3], text)


def tables_in(text):
    """(columns, rows) of the Markdown tables that a program printed."""
    lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines()
             if line.startswith("|")]
    header = None
    for line, after in zip(lines, [*lines[1:], []]):
        if after and all(re.fullmatch(r":?-+:?", cell) for cell in after):
            header = line
        elif header and not all(re.fullmatch(r":?-+:?", cell) for cell in line):
            yield header, [cell.replace("**", "") for cell in line]


def add(name, run, text):
    chosen("runs", [("run", run)])
    path = RESULTS / f"{name}.csv"
    rows = list(tables_in(text))
    if not rows:
        raise Wrong("no table on the standard input")
    columns = ["run", *rows[0][0]]
    if path.is_file():
        columns = list(read(name)[0])
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if not path.is_file():
        writer.writerow(columns)
    for header, row in rows:
        if ["run", *header] != columns:
            raise Wrong(f"{name}.csv has the columns {columns[1:]}, the table {header}")
        writer.writerow([run, *row])
    with path.open("a") as file:
        file.write(out.getvalue())


def check_runs():
    """Every row of every file belongs to a run that says where and how it was measured."""
    runs = {row["run"] for row in read("runs")}
    for path in sorted(RESULTS.glob("*.csv")):
        for number_of_line, row in enumerate(read(path.stem), 2):
            if row.get("run", "") not in runs:
                raise Wrong(f"{path}:{number_of_line}: no run '{row.get('run')}' in runs.csv")
    for row in read("runs"):
        if not all(row[column] for column in ("machine", "date", "commit", "command")):
            raise Wrong(f"runs.csv: {row['run']} does not say everything")


def main(arguments):
    if arguments[:1] == ["add"]:
        add(arguments[1], arguments[2], sys.stdin.read())
        return 0
    check = "--check" in arguments
    pages = [pathlib.Path(name) for name in arguments if name != "--check"] or sorted(BENCH.rglob("*.md"))
    status = found = 0
    check_runs()
    for page in pages:
        try:
            text = written(page)
        except Wrong as error:
            raise Wrong(f"{page}: {error}") from None
        found += text.count("<!-- table: ")
        if text != page.read_text():
            if check:
                print(f"{page}: a table is not what bench/results/ makes of it: run bench/tables.py", file=sys.stderr)
                status = 1
            else:
                page.write_text(text)
    if not found:
        raise Wrong("no page has a table")
    return status


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Wrong as wrong:
        sys.exit(f"tables.py: {wrong}")
