"""What importing costs, threads, forks, memory, and the command that comes with the package."""
import concurrent.futures
import os
import subprocess
import sys

import pytest
from attention import attention, tensors

import kvcheck
from kvcheck._command import program


def python(text):
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout


def test_importing_loads_nothing_but_itself():
    loaded = python("import sys, kvcheck; print('numpy' in sys.modules, 'kvcheck._core' in sys.modules)")
    assert loaded.split() == ["False", "False"]


def test_a_hundred_threads_have_their_own_verdicts():
    q, k, v = tensors(l=33)
    out = attention(q, k, v)
    wrong = out.copy()
    wrong[0, 0, 0, 0] += 1

    def judge(number):
        return kvcheck.judge_attention(wrong if number % 2 else out, q, k, v, plan="plain_f32", threads=2).outcome

    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert list(pool.map(judge, range(100))) == ["PASS", "FAIL"] * 50


def test_a_process_may_fork_between_calls():
    q, k, v = tensors()
    out = attention(q, k, v)
    assert kvcheck.judge_attention(out, q, k, v, plan="plain_f32", threads=4).passed
    child = os.fork()
    if child == 0:
        os._exit(0 if kvcheck.judge_attention(out, q, k, v, plan="plain_f32", threads=4).passed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_output_is_not_copied():
    # In a process of its own: the peak of this one is that of the tests before.
    peak = int(python("""
import resource, numpy as np, kvcheck
q = np.zeros((1, 64, 4096, 128), np.float32)
k = v = np.ones((1, 1, 1, 128), np.float32)
out = np.ones((1, 64, 4096, 128), np.float32)
kvcheck.judge_attention(out, q, k, v, plan="plain_f32", rows=64, threads=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""))
    # q and out are 128 MiB each; q is copied once, as an input; numpy and the interpreter take the rest.
    assert peak * 1024 < 3 * (128 << 20) + (150 << 20)


def test_the_command_comes_along():
    done = subprocess.run([sys.executable, "-c", "from kvcheck._command import main; main()", "list"], capture_output=True,
                          text=True, check=True)
    assert "plans known by name" in done.stdout
    assert subprocess.run([str(program()), "gate", "--quiet", "--fuzz-cases", "100"], check=False).returncode == 0


def test_an_adapter_begins_with_what_comes_along(tmp_path):
    """From the wheel to a judged cache: the file that new-adapter writes, served by this Python."""
    command = [sys.executable, "-c", "from kvcheck._command import main; main()"]
    environment = {name: text for name, text in os.environ.items() if name != "KVCHECK_PYTHON"}
    for words in (["new-adapter", "my_cache"], ["fuzz", "--impl", "my_cache.py", "--cases", "100"]):
        done = subprocess.run([*command, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "100 passed" in done.stdout
    assert python("import kvcheck_adapter; print(kvcheck_adapter.Adapter.__name__)") == "Adapter\n"
    done = subprocess.run([*command, "fuzz", "--impl", "mlx_lm"], cwd=tmp_path, env=environment, capture_output=True,
                          text=True)
    assert done.returncode == 2
    assert "those of libraries are in the sources: KVCHECK_ADAPTERS=SOURCES/tools/adapters" in done.stderr
    assert "kvcheck new-adapter writes one" in done.stderr


# The second call comes to no place where it could stop before it is written to.
INTERRUPTED = """
import os, signal, sys, threading, time
import numpy, kvcheck
from kvcheck import _core
from kvcheck.testing import assert_attention_close

def is_within(call, thread):
    frame = sys._current_frames()[thread]
    while frame and frame.f_code is not call.__code__:
        frame = frame.f_back
    return frame is not None

def interrupt_within(call, thread):
    # Not before the call, however late a busy machine begins it.
    while not is_within(call, thread):
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)

def interrupted(call):
    threading.Thread(target=interrupt_within, args=(call, threading.get_ident())).start()
    try:
        call()
        return False
    except KeyboardInterrupt:
        return True

q = numpy.random.default_rng(1).standard_normal((1, 8, 1024, 128), numpy.float32)
k = numpy.random.default_rng(2).standard_normal((1, 8, 16384, 128), numpy.float32)
print(interrupted(lambda: assert_attention_close(q, q, k, k, plan="plain_f32", threads=1)))

def until_left(count):
    while _core.left_calls() != count:
        time.sleep(0.01)

until_left(0)
reader, writer = os.pipe()
print(interrupted(lambda: _core.wait_for_byte(reader)), _core.left_calls())
os.write(writer, b"x")
until_left(0)
print("ended")
"""


def test_ctrl_c_ends_a_call_before_its_work_is_done():
    first, second, left, end = python(INTERRUPTED).split()
    assert first == second == "True" and left == "1" and end == "ended"


def test_the_interpreter_waits_at_its_end_for_a_call_that_was_left():
    done = python(INTERRUPTED.replace("until_left(0)\nprint(\"ended\")", "print(\"ended\")"))
    assert done.split()[-2:] == ["1", "ended"]


# Threads and memory (KiB) after a call, and after many.
KEPT = """
import os, sys
import numpy as np, kvcheck
random = np.random.default_rng(1)
q = random.standard_normal((2, 8, 64, 64), np.float32)
k, v = random.standard_normal((2, 2, 8, 256, 64), np.float32)

def look():
    with open("/proc/self/status", encoding="ascii") as status:
        return set(os.listdir("/proc/self/task")), next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

before, _ = look()
def judge():
    kvcheck.judge_attention(q, q, k, v, plan="plain_f32", threads=4, rows=16)
judge()
first, _ = look()
for _ in range(5):
    judge()
_, warm = look()
for _ in range(30):
    judge()
last, resident = look()
print(len(first - before), first <= last, len(last - before), resident - warm)
"""


def test_threads_and_memory_stay_between_calls():
    started, stay, at_the_end, grown = python(KEPT).split()
    # One that the call waits for, and the three that help it: fewer where one has done its share before the next is given.
    assert 2 <= int(started) <= int(at_the_end) <= 4
    assert stay == "True"
    assert int(grown) < 16 << 10


def test_workers_of_xdist_share_the_processors(monkeypatch):
    threads = kvcheck._attention.default_threads
    for name in ("KVCHECK_THREADS", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    assert threads() == 12
    for workers, share in ((1, 12), (2, 6), (5, 2), (12, 1), (64, 1)):
        monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", str(workers))
        assert threads() == share
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "2")
    assert threads() == 16
    monkeypatch.setenv("KVCHECK_THREADS", "3")
    assert threads() == 3


@pytest.mark.parametrize("said", ["0", "1025", "many", "-1", "1.5"])
def test_a_number_of_threads_that_is_none_is_refused(monkeypatch, said):
    q, k, v = tensors()
    monkeypatch.setenv("KVCHECK_THREADS", said)
    with pytest.raises(kvcheck.Error, match="KVCHECK_THREADS is .*: a number of threads, 1 to 1024, or unset"):
        kvcheck.judge_attention(q, q, k, v, plan="plain_f32")
    assert kvcheck.judge_attention(attention(q, k, v), q, k, v, plan="plain_f32", threads=2).passed
