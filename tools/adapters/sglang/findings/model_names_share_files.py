"""Two models whose names differ in a slash, on one folder."""
import tempfile

from _files import KEY, files, page

with tempfile.TemporaryDirectory() as folder:
    files(folder, "team/model").set(KEY, page(1))
    other = files(folder, "team-model")
    print(f"team/model stored 1; team-model: exists says {other.exists(KEY)}, and reads {other.get(KEY, page(0)).tolist()[0]}")
