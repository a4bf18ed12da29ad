"""Two files of pages change their names."""
import pathlib
import tempfile

from _files import files, page

with tempfile.TemporaryDirectory() as folder:
    store = files(folder)
    keys = ["1" * 64, "2" * 64]
    for key, value in zip(keys, (1, 2)):
        store.set(key, page(value))
    one, two = sorted(pathlib.Path(folder).glob("*.bin"))
    other = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(other)
    print("stored 1, 2; read", ", ".join(str(int(store.get(key, page(0))[0])) for key in keys))
