"""Two files of blocks change their names; a third is replaced by bytes of the same length."""
import pathlib
import tempfile

from _tiers import PAGE, Tiers, key

with tempfile.TemporaryDirectory() as folder:
    tiers = Tiers(folder, 4)
    first = tiers.request()
    for number in range(3):
        tiers.store(key(number), number + 1, first)
    tiers.manager.on_request_finished(first)
    tiers.end()
    one, two, three = sorted(pathlib.Path(folder).rglob("*.bin"), key=lambda path: path.name)
    other = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(other)
    three.write_bytes(bytes([9]) * PAGE)
    tiers = Tiers(folder, 4)
    again = tiers.request()
    tiers.lookup([key(number) for number in range(3)], again, most_steps=200)
    print("stored 1, 2, 3; read", ", ".join(str(tiers.load(key(number), again)) for number in range(3)))
    tiers.end()
