"""Several stores behind one `run`: options say which, and whether with the causes of FINDINGS.md repaired."""
import argparse
import importlib


def chosen(program, modules):
    """ADAPTER of a file whose stores stand in these modules (`module` or `module:CLASS`), by name, the first the default."""
    def make(*options):
        parser = argparse.ArgumentParser(prog=program, allow_abbrev=False)
        parser.add_argument("--store", choices=modules, default=next(iter(modules)))
        parser.add_argument("--patched", action="store_true")
        asked = parser.parse_args(options)
        name, _, store = modules[asked.store].partition(":")
        module = importlib.import_module(name)
        made = getattr(module, store or "STORE")()
        if asked.patched:
            module.repair()
            made.name, made.version = f"{made.name}-patched", f"{made.version}, patched"
        return made
    return make
