"""A file of a page loses its end; the page is read, stored again and read."""
import pathlib
import tempfile

from _files import KEY, files, page

with tempfile.TemporaryDirectory() as folder:
    store = files(folder)
    store.set(KEY, page(1))
    (path,) = pathlib.Path(folder).glob("*.bin")
    path.write_bytes(path.read_bytes()[:-1])
    for again in ("", "stored again: "):
        if again:
            store.set(KEY, page(1))
        try:
            said = f"reads {store.get(KEY, page(0)).tolist()[0]}"
        except OSError as error:
            said = f"raises {type(error).__name__}"
        print(f"{again}exists says {store.exists(KEY)}, get {said}, {path.stat().st_size} of 16 bytes")
