"""What an author needs to put a library before kvcheck: fill in the methods of Adapter that the library has, or of
PrefixAdapter where it is a cache across requests.

    python3 -m kvcheck_adapter my_adapter.py        # what kvcheck starts; speaks frames on stdin and stdout

The frames are those of tools/process/protocol.md. tools/adapters/tutorial.md begins with nothing.
"""
from .adapter import Adapter, Refused, Setup, Unsupported
from .base import Misfit
from .prefix import FULL, CollectedPrompt, Identity, PrefixAdapter, PrefixSetup, Started, whole_blocks
from .masks import case_mask, visible_of
from .storage import from_float32, to_float32
from .texts import Format, Layout, parse_format, parse_layout

__all__ = ["Adapter", "CollectedPrompt", "FULL", "Format", "Identity", "Layout", "Misfit", "PrefixAdapter", "PrefixSetup",
           "Refused", "Setup", "Started", "Unsupported", "case_mask", "from_float32", "parse_format", "parse_layout", "to_float32",
           "visible_of", "whole_blocks"]
