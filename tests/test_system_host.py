"""CPU, RAM, disk, network and limits against independent readings; the sampling thread."""

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from system_run import host

from llamafactory_obs.callbacks import host_load, process_tree
from llamafactory_obs.callbacks.cgroup import ControlGroup
from llamafactory_obs.callbacks.host_load import HostLoad, _Rate
from llamafactory_obs.callbacks.process_tree import ProcessTree

GIB, MIB = 1 << 30, 1 << 20
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")

BURN = "import time; end = time.process_time() + {}\nwhile time.process_time() < end: pass\n"


# ---- the process and its children -----------------------------------------------------------------------------------


def between(load: HostLoad, work, first: int = 2) -> tuple[dict, float]:
    """What the load says over `work`, and the seconds it took."""
    for _ in range(first):  # half of it is read every second time: what is asked for is due in the next reading
        load.read()
    began = time.monotonic()
    work()
    found = load.read()
    return found, time.monotonic() - began


def test_cpu_of_this_process_against_its_own_clock(tmp_path):
    clock = time.process_time()

    def burn():
        while time.process_time() - clock < 0.3:
            pass
        time.sleep(0.3)

    before = time.process_time()
    found, seconds = between(host(tmp_path, whole_node=False), burn)
    used = time.process_time() - before
    assert found["cpu_percent"] * seconds / 100 == pytest.approx(used, abs=0.06) and used > 0.3


def test_a_child_counts_while_it_lives_and_not_twice_when_it_has_ended(tmp_path):
    load, used = host(tmp_path, whole_node=False), []

    def reading(seconds):
        began = time.monotonic()
        time.sleep(seconds)
        found = load.read()["cpu_percent"] * (time.monotonic() - began + took) / 100
        used.append(found)

    load.read()
    took = 0.0
    code, until = BURN.format(0.6) + "print(flush=True); input()", time.monotonic() + 60
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    while not select.select([child.stdout], [], [], 0)[0] and time.monotonic() < until:
        reading(0.2)
    reading(0.2)
    assert sum(used) == pytest.approx(0.6, abs=0.15)
    child.communicate(b"\n")  # the kernel adds what the child used to this process now
    reading(0.25)
    reading(0.25)
    assert sum(used) == pytest.approx(0.65, abs=0.2)


def test_a_file_of_a_known_size_by_this_process_and_by_a_child(tmp_path):
    size = 24 * MIB
    code = f"import os; f = open({str(tmp_path / 'b')!r}, 'wb'); f.write(os.urandom({size})); f.flush(); os.fsync(f)"

    def write():
        with open(tmp_path / "a", "wb") as file:
            file.write(os.urandom(size))
            os.fsync(file.fileno())
        subprocess.run([sys.executable, "-c", code], check=True)

    if not written_counts(tmp_path):
        pytest.skip("writes to this file system are not counted (memory)")
    found, seconds = between(host(tmp_path, whole_node=False), write, first=3)
    assert found["disk_write_mib_s"] * seconds == pytest.approx(48, rel=0.1)
    idle, seconds = between(host(tmp_path, whole_node=False), lambda: time.sleep(0.2), first=3)
    assert idle["disk_write_mib_s"] * seconds < 1


def written_counts(tmp_path) -> bool:
    before = psutil.Process().io_counters().write_bytes
    with open(tmp_path / "probe", "wb") as file:
        file.write(b"x" * MIB)
        os.fsync(file.fileno())
    return psutil.Process().io_counters().write_bytes - before >= MIB


def test_memory_of_the_tree(tmp_path):
    code = "x = bytearray(200 << 20); print('ready', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        before = host(tmp_path, whole_node=False)
        child.stdout.readline()
        held = before.read()["process_ram_gib"]
        both = sum(psutil.Process(pid).memory_info().rss for pid in (os.getpid(), child.pid))
        assert held == pytest.approx(both / GIB, rel=0.05) and held > 0.2
    finally:
        child.communicate(b"\n")


@linux
@pytest.mark.parametrize("listed", [True, False])
def test_the_tree_has_children_and_grandchildren_and_no_companions(listed):
    code = (
        "import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE);"
        "print(c.pid, flush=True); input(); c.communicate(b'\\n')"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    tree = ProcessTree()
    tree._lists_children = tree._lists_children and listed
    ours = subprocess.Popen([sys.executable, "-c", code], **pipes)
    other = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **pipes)
    try:
        grandchild = int(ours.stdout.readline())
        other.stdout.readline()
        tree.refresh()
        assert set(tree._known) == {os.getpid(), ours.pid, grandchild}
    finally:
        for process in (ours, other):
            process.communicate(b"\n")
    for _ in range(process_tree._ALL_THREADS_EVERY):
        tree.refresh()
        assert tree.cpu_seconds() > 0, "those that have gone are no trouble"
    assert set(tree._known) == {os.getpid()}


def test_a_total_that_falls_and_comes_back_is_not_counted_twice():
    rate, out = _Rate(), []
    for second, total in enumerate([100, 150, 110, 112, 170, 170]):  # a child of 45 has ended, and was then waited for
        out.append(rate.push(total, float(second)))
    assert out == [None, 50, 0, 0, 20, 0]
    rate, out = _Rate(), []
    for second, total in enumerate([100, 50, 51, 52, 53, 54, 64, 74]):  # nobody has waited for it
        out.append(rate.push(total, float(second)))
    assert out[-2:] == [10, 10] and max(out[1:-2]) == 0


# ---- the node -------------------------------------------------------------------------------------------------------


@linux
def test_the_node_s_numbers_against_proc(tmp_path):
    def stat():
        numbers = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(numbers), sum(numbers) - numbers[3] - numbers[4]

    total, busy = stat()
    burner = subprocess.Popen([sys.executable, "-c", BURN.format(0.5)])
    found, _ = between(host(tmp_path), lambda: time.sleep(0.6))
    burner.wait()
    after, busy_after = stat()
    wanted = 100 * (busy_after - busy) / (after - total)
    assert found["host_cpu_percent"] == pytest.approx(wanted, abs=20)
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = int(meminfo["MemAvailable"].split()[0]) / MIB
    limit = ControlGroup().memory_limit
    assert found["ram_available_gib"] == pytest.approx(min(available, (limit or 1 << 62) / GIB), rel=0.05)
    fs = os.statvfs(tmp_path)
    assert found["disk_free_gib"] == pytest.approx(fs.f_bavail * fs.f_frsize / GIB, rel=0.01)
    assert found["net_mib_s"] >= 0


def test_one_rank_of_a_node_reads_what_belongs_to_the_node(tmp_path):
    load = host(tmp_path, whole_node=False)
    load.read()
    assert set(load.read()) == {"cpu_percent", "disk_read_mib_s", "disk_write_mib_s", "process_ram_gib"}


def test_network_counts_hardware_and_no_loopback(tmp_path, monkeypatch):
    from types import SimpleNamespace as Row

    def cards(**sent):
        return {name: Row(bytes_sent=n * MIB, bytes_recv=0) for name, n in sent.items()}

    clock = iter([10.0, 12.0])
    monkeypatch.setattr(host_load, "time", Row(monotonic=lambda: next(clock)))
    counts = iter([cards(lo=0, eth0=0, docker0=0), cards(lo=900, eth0=6, docker0=500)])
    monkeypatch.setattr(psutil, "net_io_counters", lambda pernic, nowrap: next(counts))
    monkeypatch.setattr(host_load, "_is_hardware", lambda path: path.endswith("eth0"))
    load = host(tmp_path)
    assert load._node_network() == {} and load._node_network() == {"net_mib_s": 3.0}
    clock = iter([10.0, 12.0])
    counts = iter([cards(lo=0, eth0=0), cards(lo=900, eth0=6)])
    monkeypatch.setattr(host_load, "_is_hardware", lambda path: False)  # a container
    load = host(tmp_path)
    assert load._node_network() == {} and load._node_network() == {"net_mib_s": 3.0}


@pytest.mark.parametrize(
    ("broken", "lost"),
    [
        ("cpu_seconds", {"cpu_percent"}),
        ("io_bytes", {"disk_read_mib_s", "disk_write_mib_s"}),
        ("rss_bytes", {"process_ram_gib"}),
        ("net_io_counters", {"net_mib_s"}),
        ("disk_io_counters", {"host_disk_mib_s"}),
        ("disk_usage", {"disk_free_gib"}),
        ("virtual_memory", {"ram_available_gib"}),
        ("cpu_times", {"host_cpu_percent"}),
        ("refresh", set()),
    ],
)
def test_each_value_fails_alone(tmp_path, monkeypatch, broken, lost):
    def readings(load):
        found = set()
        for _ in range(3):
            time.sleep(0.03)  # two ticks of the node's clock
            found = set(load.read())
        return found

    everything = readings(host(tmp_path))

    def refuse(*args, **kwargs):
        raise psutil.AccessDenied(msg="not for you")

    monkeypatch.setattr(ProcessTree if hasattr(ProcessTree, broken) else psutil, broken, refuse)
    load = host(tmp_path)
    assert readings(load) == everything - lost
    assert len(load.errors) == 1 and "not for you" in str(load.errors)


def test_a_reading_costs_little(tmp_path):
    load = host(tmp_path)
    load.read()
    costs = []
    for _ in range(5):
        began = time.thread_time()
        for _ in range(20):
            load.read()
        costs.append((time.thread_time() - began) / 20)
    assert min(costs) < 0.01, "once a second: less than 1 % of a core, on a slow machine"
