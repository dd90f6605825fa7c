"""A stand-in for the module `pynvml`: four cards, the errors and the bytes of the real one."""

from types import SimpleNamespace as Row

GIB = 2**30
UUIDS = [f"GPU-{n}a88aa00-0000-1111-2222-33333333333{n}" for n in range(4)]


class NoPermission(Exception):
    def __str__(self):
        return "Insufficient Permissions"


class FakeNvml:
    """pynvml's functions over plain rows; `broken` names functions that raise."""

    def __init__(self, names=("NVIDIA H200",) * 4, mig=(), broken=(), as_bytes=False):
        self.cards = [
            Row(index=i, name=n, uuid=UUIDS[i], pci=f"00000000:{i + 1:02X}:00.0", total=(i + 1) * 10 * GIB)
            for i, n in enumerate(names)
        ]
        if len(set(names)) == 1:
            for card in self.cards:
                card.total = 140 * GIB
        self.mig, self.broken, self.as_bytes, self.calls = set(mig), set(broken), as_bytes, []
        self.running = [Row(pid=4242, usedGpuMemory=30 * GIB), Row(pid=4343, usedGpuMemory=None)]

    def __getattribute__(self, name):
        if name.startswith("nvml"):
            self.calls.append(name)
            if name in self.broken:
                raise NoPermission
        return object.__getattribute__(self, name)

    def _text(self, value):
        return value.encode() if self.as_bytes else value

    def nvmlInit(self): ...

    def nvmlDeviceGetCount(self):
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid != "MIG-fe59aaaa-0000-0000-0000-000000000000":
            raise NoPermission
        return Row(index="mig", name="NVIDIA H200 MIG 1g.18gb", uuid=uuid)

    def nvmlDeviceGetName(self, card):
        return self._text(card.name)

    def nvmlDeviceGetUUID(self, card):
        return self._text(card.uuid)

    def nvmlDeviceGetPciInfo(self, card):
        return Row(busId=self._text(card.pci))

    def nvmlDeviceGetMemoryInfo(self, card):
        return Row(total=card.total, used=(card.index + 1) * GIB, free=card.total - (card.index + 1) * GIB)

    def nvmlDeviceGetMigMode(self, card):
        return [1, 1] if card.index in self.mig else [0, 0]

    def nvmlDeviceGetComputeRunningProcesses(self, card):
        return self.running

    def nvmlDeviceGetGraphicsRunningProcesses(self, card):
        return [Row(pid=4242, usedGpuMemory=GIB)]

    def nvmlSystemGetDriverVersion(self):
        return self._text("570.86.15")

    def nvmlSystemGetCudaDriverVersion(self):
        return 12080
