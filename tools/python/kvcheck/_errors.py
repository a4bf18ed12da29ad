"""The exception of everything that kvcheck cannot do, and the warning of what passed. What a judged kernel did wrong is
a Verdict, and no exception."""


class Error(ValueError):
    """A question that cannot be put: shapes that contradict each other, a text that does not parse, a missing array.

    code     "usage", "malformed text", "illegal case", "unreadable file", "missing data", "unsupported"
    context  where: the array, the text, the file
    """

    def __init__(self, message, code="usage", context=""):
        super().__init__(message)
        self.code = code
        self.context = context


class KvcheckWarning(UserWarning):
    """What a verdict says beside PASS: a statistic over its limit, elements that were not judged, a bound that hides much.

    The assertions of kvcheck.testing warn of it, so that pytest lists it and its filters apply:
    -W error::kvcheck.KvcheckWarning makes it a failure.
    """
