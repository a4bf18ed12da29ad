"""The exception of everything that kvcheck cannot do. What a judged kernel did wrong is a Verdict, and no exception."""


class Error(ValueError):
    """A question that cannot be put: shapes that contradict each other, a text that does not parse, a missing array.

    code     "usage", "malformed text", "illegal case", "unreadable file", "missing data", "unsupported"
    context  where: the array, the text, the file
    """

    def __init__(self, message, code="usage", context=""):
        super().__init__(message)
        self.code = code
        self.context = context
