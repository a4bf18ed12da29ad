"""python3 -m kvcheck_adapter FILE.py [OPTION...]: serves the adapter that the file defines, on stdin and stdout.

The file holds one subclass of Adapter or PrefixAdapter, or says with ADAPTER = ... which one. Options go to its
constructor as texts.
Exit codes: 0 the input ended; 2 the file cannot be used; 1 the stream is broken.
"""
import contextlib
import importlib.util
import pathlib
import sys
import threading

from .wire import ProtocolError, Stream, claim_stdout


def fail(message):
    print(f"kvcheck_adapter: {message}", file=sys.stderr)
    sys.exit(2)


def load(path):
    """The adapter's class. The library is imported here, after its prints were led elsewhere."""
    from .base import Implementation
    path = pathlib.Path(path)
    if not path.is_file():
        fail(f"there is no file {path}")
    sys.path.insert(0, str(path.parent))
    name = f"kvcheck_adapter_file_{path.stem}"  # no name of an installed module
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        fail(f"{path} needs what is not installed: {error}")
    if hasattr(module, "ADAPTER"):
        return module.ADAPTER
    found = [item for item in vars(module).values()
             if isinstance(item, type) and issubclass(item, Implementation) and item.__module__ == name]
    if len(found) != 1:
        fail(f"{path} defines {len(found)} subclasses of Adapter; with ADAPTER = ... it says which one is meant")
    return found[0]


def session_of(adapter):
    from .prefix import PrefixAdapter
    if isinstance(adapter, PrefixAdapter):
        from .prefix_session import PrefixSession
        return PrefixSession
    from .session import Session
    return Session


@contextlib.contextmanager
def signs_of_life(stream):
    """While a library is imported, which takes minutes on a busy machine. Nothing else writes to the stream then."""
    done = threading.Event()

    def beat():
        while not done.wait(0.5):
            stream.alive()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__, file=sys.stderr)
        sys.exit(0 if arguments else 2)
    stream = Stream(0, claim_stdout())
    from .pins import warnings_of
    with signs_of_life(stream):
        adapter = load(arguments[0])(*arguments[1:])
        adapter.warnings = [*adapter.warnings, *warnings_of(pathlib.Path(arguments[0]).parent)]
    try:
        session_of(adapter)(adapter, stream).run()
    except ProtocolError as error:
        print(f"kvcheck_adapter: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
