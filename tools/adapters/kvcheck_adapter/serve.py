"""What kvcheck starts for `--impl FILE.py`: python3 serve.py FILE.py [OPTION...]. The package beside it need not be installed.

Exit codes: those of kvcheck_adapter; 2 too where this Python lacks what the package needs.
"""
import sys

sys.dont_write_bytecode = True  # the folder may be another user's
try:
    import msgpack  # noqa: F401
    import numpy  # noqa: F401
except ImportError as error:
    print(f"kvcheck_adapter: {sys.executable} has no {error.name}, which an adapter needs: {sys.executable} -m pip install "
          "numpy msgpack; or let KVCHECK_PYTHON name a Python that has them, and the library that is judged",
          file=sys.stderr)
    sys.exit(2)
from kvcheck_adapter.__main__ import main

main(sys.argv[1:])
