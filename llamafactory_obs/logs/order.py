"""From the file's order to the order of training: starts, resumes, repeated steps, late evaluations.

The result holds one row per step of each run. A resume that falls back to a checkpoint takes the place of the rows
after it; a restart (another run in the same log) stands behind the first one.
"""

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field

from .curves import Break, Column
from .names import ELAPSED, EPOCH, LOSS, LR, NORM, STEP, TOTAL
from .rates import schedule_restarts
from .resumed import AFTER, BEFORE, Begun, Resumed, resumes_of
from .scan import changes, falls, not_rising
from .table import Table, trained
from .writers import one_writer

SEGMENT = "segment"  # of our own record: it says itself where a start begins
EPOCH_SLACK = 0.02  # logs round the epoch to two digits
EVIDENCE = {STEP: "step", EPOCH: "epoch", LR: "lr", LOSS: "loss", TOTAL: "total_steps", ELAPSED: "elapsed_s"}


@dataclass
class Order:
    """Rows of the table in the order of training.

    breaks     their `row` is a row of the table
    overlaps   (step, loss before, loss after) of steps that a resume has repeated
    resumes    each resume with the rows around it, also where a later one has taken their place
    """

    rows: array
    breaks: list[Break] = field(default_factory=list)
    overlaps: list[tuple[int, float, float]] = field(default_factory=list)
    resumes: list[Resumed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def put_in_order(table: Table) -> Order:
    """The order of training. All rows have a step; those of one step become one, in place."""
    columns, note = table.columns, None
    if SEGMENT not in columns:
        rows, note = one_writer(table)
        table.keep(rows)
    order = _Walk(table).run()
    if note:
        order.notes.append(note)
    return order


def _reasons(table: Table, train: bytearray) -> dict[int, list[str]]:
    """Row -> why another start begins there, by anything but the step."""
    columns = table.columns
    if SEGMENT in columns:
        return {row: ["another segment"] for row in changes(columns[SEGMENT])}
    why: dict[int, list[str]] = {}
    for reason, rows in (
        ("the elapsed time begins again", falls(columns.get(ELAPSED))),
        ("the total of steps is another", changes(columns.get(TOTAL))),
        ("the epoch falls", falls(columns.get(EPOCH), train, EPOCH_SLACK)),
    ):
        for row in rows:
            why.setdefault(row, []).append(reason)
    if LR in columns:
        known = {row for near in why for row in range(near - 2, near + 3)}
        for row in schedule_restarts(columns[LR], columns.get(LOSS)):
            if row not in known:
                why[row] = ["the learning rate begins a schedule anew"]
    return why


class _Walk:
    """Goes through the rows once; what is in order is taken in bulk."""

    def __init__(self, table: Table):
        self.table = table
        self.step = table.columns[STEP].values
        self.train = trained(table)
        self.kept = array("q")
        self.floor = self.begun = 0  # where in `kept` the newest run begins, and the newest start
        self.order = Order(self.kept)
        self.starts: list[Begun] = []
        self.twice = self.abandoned = self.late = self.strange = 0

    def run(self) -> Order:
        why = _reasons(self.table, self.train)
        done, end = 0, self.table.rows
        for row in sorted({*not_rising(self.table.columns[STEP]), *why}):
            if row < done:
                continue
            self.kept.extend(range(done, row))
            moved = self._place(row, why.get(row, []))
            done = row + 1
            # the last row kept is not the row before: the next ones have to be looked at, too
            while moved and done < end and done not in why and self.step[done] <= self.step[self.kept[-1]]:
                moved = self._place(done, [])
                done += 1
        self.kept.extend(range(done, end))
        if self.starts:
            self.order.resumes = resumes_of(self.table, self.starts, self.train)
        self._note()
        return self.order

    def _place(self, row: int, why: list[str]) -> bool:
        """Place one row that does not simply follow. True where it did not become the last one."""
        if not self.kept:
            self.kept.append(row)
            return False
        last, step = self.kept[-1], self.step[row]
        before = self.step[last]
        if step > before:
            if self.order.breaks and not any(self.train[there] for there in self.kept[self.begun :]):
                evidence = self.order.breaks[-1].evidence  # the start that an evaluation has opened
                evidence["why"] = "; ".join((*why, evidence["why"]))
            else:
                self._begin(row, last, "resume", why)
                self._remember(row, len(self.kept), is_resume=True)
                self.begun = len(self.kept)
            self.kept.append(row)
            return False
        if not self.train[row] and not self._new_start_follows(row, why):
            return self._put_at_its_step(row)
        if step == before and not why:
            twice = self.train[last] and self.train[row]
            if not twice or self._same(last, row):
                self.twice += bool(twice)
                self._merge(last, row)
                return True
        self._fall(row, why)
        return False

    def _fall(self, row: int, why: list[str]) -> None:
        """A start whose first row is of a step that the log already had."""
        last, step = self.kept[-1], self.step[row]
        why = [*why, "the step falls" if step < self.step[last] else "the step is repeated"]
        from_the_beginning = step <= self.step[self.kept[self.floor]] or step <= self._stride(row)
        if from_the_beginning and SEGMENT not in self.table.columns:
            self._begin(row, last, "restart", why)
            self._remember(row, len(self.kept), is_resume=False)
            self.floor = len(self.kept)
        else:
            cut = self._find(step)
            gone = self.kept[cut:]
            self._begin(row, last, "resume", why, gone[0] if self.step[gone[0]] == step else None)
            self._remember(row, cut, is_resume=True)
            del self.kept[cut:]
            self._compare(row, gone)
        self.begun = len(self.kept)
        self.kept.append(row)

    def _remember(self, row: int, cut: int, is_resume: bool) -> None:
        """The rows around a start, for `Resumed`: those in `kept` from `cut` on are about to be replaced."""
        before = self.kept[max(self.floor, cut - BEFORE) : cut]
        run = self.starts[-1].run + (not self.starts[-1].is_resume) if self.starts else 0
        self.starts.append(Begun(row, run, before, self.kept[cut : cut + 2 * AFTER], is_resume))

    def _compare(self, first: int, gone: array) -> None:
        """Overlaps: the losses of the steps that are there twice. Steps that the new start never reaches are lost."""
        loss, end = self.table.columns.get(LOSS), self.step[gone[-1]]
        old = {self.step[row]: loss[row] for row in gone if loss[row] is not None} if loss is not None else {}
        reached = self.step[first]
        for row in range(first, self.table.rows):
            if self.step[row] < reached:
                break
            reached = self.step[row]
            if reached > end:
                break
            if reached in old and loss[row] is not None:
                self.order.overlaps.append((int(reached), old.pop(reached), loss[row]))
        self.abandoned += sum(1 for row in gone if self.step[row] > reached)

    def _find(self, step: float) -> int:
        """Where in `kept` the first row of at least this step stands, within the newest run."""
        return bisect_left(self.kept, step, lo=self.floor, key=lambda row: self.step[row])

    def _put_at_its_step(self, row: int) -> bool:
        """An evaluation whose step has gone by: one that was slow, or one after the end."""
        cut = self._find(self.step[row])
        if self.step[self.kept[cut]] == self.step[row]:
            self._merge(self.kept[cut], row)
        elif cut == self.floor > 0:
            self.strange += 1  # of a step before the newest run: there is no telling of which run it is
        else:
            self.kept.insert(cut, row)
            self.begun += cut < self.begun
            self.late += 1
        return True

    def _merge(self, into: int, row: int) -> None:
        """What the first row of a step lacks comes from the later ones.

        So an evaluation after the end, which may be that of the best checkpoint, does not replace the step's own.
        """
        for column in self.table.columns.values():
            if column.present[row] and not column.present[into]:
                column[into] = column.values[row]
        self.train[into] |= self.train[row]

    def _same(self, one: int, other: int) -> bool:
        """Is it the same row again, perhaps rounded otherwise?"""
        for name in (LOSS, LR, NORM):
            column: Column | None = self.table.columns.get(name)
            if column is not None and column.present[one] and column.present[other]:
                a, b = column.values[one], column.values[other]
                if not (a == b or abs(a - b) <= 6e-5 * max(abs(a), abs(b)) + 1e-12 or (a != a and b != b)):
                    return False
        return True

    def _new_start_follows(self, row: int, why: list[str]) -> bool:
        """Is this evaluation the first row of a new start (`eval_on_start`)? Then training rows go on from its step."""
        if why:
            return True
        for later in range(row + 1, min(row + 50, self.table.rows)):
            if self.train[later]:
                return self.step[row] <= self.step[later] <= self.step[self.kept[-1]]
        return False

    def _stride(self, row: int) -> float:
        """Steps from row to row of the start that begins here; 0 where there is but one row."""
        steps = [self.step[at] for at in range(row, min(row + 20, self.table.rows)) if self.train[at]]
        return next((step - steps[0] for step in steps[1:] if step > steps[0]), 0.0)

    def _begin(self, row: int, last: int, kind: str, why: list[str], same_step: int | None = None) -> None:
        evidence: dict = {"why": "; ".join(why)}
        for name, word in EVIDENCE.items():
            column: Column | None = self.table.columns.get(name)
            if column is not None:
                for key, which in ((f"{word}_before", last), (word, row), (f"{word}_at_this_step", same_step)):
                    if which is not None and column.present[which] and key != "step_at_this_step":
                        value = column.values[which]
                        evidence[key] = int(value) if name in (STEP, TOTAL) else value
        self.order.breaks.append(Break(row, kind, evidence))

    def _note(self) -> None:
        notes = self.order.notes
        if self.twice:
            notes.append(f"{self.twice} rows stood twice")
        if self.abandoned:
            notes.append(f"{self.abandoned} rows of steps that a later start has not reached left out")
        if self.late:
            notes.append(f"{self.late} evaluations stood behind later steps: put at theirs")
        if self.strange:
            notes.append(f"{self.strange} evaluations of steps before the newest run left out")
