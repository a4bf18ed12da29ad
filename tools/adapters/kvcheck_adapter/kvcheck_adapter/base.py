"""What all adapters have: who answers, what of its kinds is there, and how a call is declined."""


class Unsupported(Exception):
    """A legal call that the library does not have. NotImplementedError says the same."""


class Mistake(Exception):
    """What the adapter's author has to repair, as a sentence: the case is CRASHED with it."""


class Refused(Exception):
    """An illegal call. Whatever else the library raises says the same; this one for refusals by the adapter."""


class Misfit(ValueError):
    """What a call returned does not fit together, as a sentence: it was carried out, and wrongly. what: "mask" (over other
    columns than K and V have) or "k and v" (of different numbers of columns)."""

    def __init__(self, what, sentence):
        super().__init__(sentence)
        self.what = what


class Implementation:
    """The base of Adapter (caches, attention, codecs) and of PrefixAdapter."""
    name = "?"
    version = "?"
    kinds = ()
    profile = ""  # texts of reference/README.md, section 3.6; "" leaves the defaults
    spaces = ()  # tools/process/protocol.md; what is drawn stays inside of them
    warnings = ()  # said before the first verdict; versions other than those of requirements.txt are added to them
    # Preconditions that the library does not check, its callers do: such calls are refused before they reach it, and
    # nothing is claimed of them.
    relies_on = frozenset()
    # Not empty: why something that was to be kept on disk could not be written (a background thread found the disk
    # full). The case then proves nothing about what is missing. An OSError for want of room that a method lets through
    # says the same.
    no_room = ""

    def alive(self):
        """Call it now and then in work of seconds, so that it is not taken for a hang."""
