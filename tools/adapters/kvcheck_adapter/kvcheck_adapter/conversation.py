"""One conversation: requests become calls of an adapter's methods, and what they return or raise becomes answers.

Refusals: whatever the author's methods raise. An exception of this package is a bug and is said to be one ("failed").
"""
import errno
import os
import sys
import traceback

from .base import Misfit, Mistake, Refused, Unsupported

MESSAGE_CHARACTERS = 300
NOTHING = b"\x80"  # an empty map


class LibraryError(Exception):
    """Carries what a method of the author raised."""


def is_for_want_of_room(error):
    """Whether an exception, or what caused it, says that the disk (or a quota) is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        # sqlite3 has no number before Python 3.11.
        if type(error).__module__ == "sqlite3" and "disk is full" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def misspelt(error):
    return isinstance(error, (NameError, ImportError)) and not isinstance(error, UnboundLocalError)


class Conversation:
    """Methods named do_REQUEST answer, each with a map or None."""
    preconditions = frozenset()  # that an adapter may rely on
    greets_with = ("profile",)  # texts of the adapter that a greeting has where they are not empty

    def __init__(self, adapter, stream):
        self.adapter, self.stream = adapter, stream
        self.relies_on = frozenset(adapter.relies_on)
        unknown = self.relies_on - self.preconditions
        if unknown:
            raise ValueError(f"relies_on names no precondition: {', '.join(sorted(unknown))}")
        self.calls = {name[3:]: getattr(self, name) for name in dir(self) if name.startswith("do_")}
        adapter.alive = stream.alive

    def run(self):
        """Answers until the input ends."""
        receive, send, answer = self.stream.receive, self.stream.send, self.answer
        while (request := receive()) is not None:
            send(answer(request))

    def answer(self, request):
        """The packed answer of one request."""
        try:
            answer = self.answered(request)
            return self.stream.pack(answer) if answer else NOTHING
        except Exception as error:
            return self.stream.pack(self.failed(error))

    def failed(self, error):
        answer = {"failed": self.bug(error)}
        return {**answer, "no_room": answer["failed"]} if is_for_want_of_room(error) else answer

    def answered(self, request):
        """The map that answers it. Raises what is a bug of this package."""
        try:
            call = self.calls.get(request.get("do"))
            if call is None:
                return {"failed": f"no request of this protocol: {request.get('do')!r}"}
            if request["do"] == "start":
                self.adapter.no_room = ""
            answer = call(request) or {}
            return {**answer, "no_room": self.printable(self.adapter.no_room)} if self.adapter.no_room else answer
        except LibraryError as error:
            return self.explained(error.__cause__)
        except Unsupported as error:
            return {"unsupported": self.worded(error)}
        except Refused as error:
            return {"refused": self.worded(error)}

    def call(self, method, *arguments):
        """A call of the author's; what it raises is the library's answer."""
        try:
            return method(*arguments)
        except (Unsupported, Refused):
            raise
        except Exception as error:
            raise LibraryError from error

    def explained(self, error):
        if isinstance(error, NotImplementedError):
            return {"unsupported": self.worded(error)}
        if isinstance(error, Mistake) or misspelt(error):
            return {"failed": self.bug(error)}
        if isinstance(error, Misfit):
            return {"refused": self.worded(error), "misfit": error.what}
        answer = {"refused": f"{type(error).__name__}: {self.worded(error)}"}
        return {**answer, "no_room": answer["refused"]} if is_for_want_of_room(error) else answer

    def worded(self, error):
        return self.printable(error)

    def printable(self, said):
        first = (str(said).splitlines() or [""])[0]
        return first.encode("ascii", "backslashreplace").decode()[:MESSAGE_CHARACTERS]

    def mistaken(self, error):
        """Of what a probe raised: whether it is the author's mistake. A wrong attribute or argument is where the line that
        raises stands in the adapter's own folder or in this package, which it answers; elsewhere the library raised."""
        if isinstance(error, Mistake):
            return True
        if not isinstance(error, (AttributeError, TypeError)):
            return misspelt(error)
        raised = traceback.extract_tb(error.__traceback__)[-1].filename
        own = sys.modules[type(self.adapter).__module__].__file__
        folder, *authors = (os.path.dirname(os.path.realpath(file)) for file in (raised, own, __file__))
        return folder in authors

    def bug(self, error):
        if isinstance(error, LibraryError):
            error = error.__cause__
        if isinstance(error, Mistake):
            return self.worded(error)
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
        return f"{type(error).__name__}: {self.worded(error)}{place}"

    def do_hello(self, request):
        if request.get("protocol") != 1:
            return {"failed": f"this adapter speaks protocol 1, not {request.get('protocol')}"}
        a = self.adapter
        answer = {"protocol": 1, "name": a.name, "version": a.version, "kinds": list(a.kinds)}
        for key in self.greets_with:
            if getattr(a, key):
                answer[key] = getattr(a, key)
        for key in ("spaces", "warnings"):
            if getattr(a, key):
                answer[key] = list(getattr(a, key))
        return answer
