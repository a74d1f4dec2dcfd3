"""Processors that tests run through Spark."""

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor


def visits(s):
    from test_testing import Visits

    return s.groupBy("user").transformWithState(
        Visits(), "user STRING, n INT", "Update", "eventTime"
    )


class Reminders(StatefulProcessor):
    def init(self, handle):
        self.handle = handle

    def handleInputRows(self, key, rows, timerValues):
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 30_000)
        yield Row(user=key[0], said="hello")

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        yield Row(user=key[0], said="still there?")

    def close(self):
        pass


class Counted(StatefulProcessor):
    """What is there of one minute, before each row."""

    def init(self, handle):
        self.last = handle.getValueState("last", "n INT", 60_000)
        self.all = handle.getListState("all", "n INT", 60_000)
        self.of = handle.getMapState("of", "n INT", "n INT", 60_000)

    def handleInputRows(self, key, rows, timerValues):
        for row in rows:
            last = self.last.get()[0] if self.last.exists() else None
            everything = sorted(n for (n,) in self.all.get())
            known = sorted(n for (n,), _ in self.of.iterator())
            yield Row(user=key[0], n=row.n, last=last, everything=everything, known=known)
            self.last.update((row.n,))
            self.all.appendValue((row.n,))
            self.of.updateValue((row.n,), (row.n,))

    def close(self):
        pass


def counted(s):
    schema = "user STRING, n INT, last INT, everything ARRAY<INT>, known ARRAY<INT>"
    return s.groupBy("user").transformWithState(Counted(), schema, "Update", "processingTime")


def reminders(s):
    return s.groupBy("user").transformWithState(
        Reminders(), "user STRING, said STRING", "Update", "processingTime"
    )
