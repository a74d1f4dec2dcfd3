"""The Spark session: our defaults, the user's confs, quiet terminals."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evertable.errors import EvertableError, NotReady
from evertable.spark import classes, printed
from evertable.spark.java import Java, find_java
from evertable.spark.log import JvmLog

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SPARK_MINOR = "4.3"

# One writer on a local disk needs no more than rename for its checkpoint: half the time a batch.
FILE_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SOURCE_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
JVM_FLAGS = "spark.driver.extraJavaOptions"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# A local file system that starts no `chmod` for each file; used where a conf asks for it.
BARE_FILES = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"


def start(
    confs: Mapping[str, str],
    *,
    name: str,
    root: str,
    logs: str,
    quick: bool = False,
    jvm_flags: str | None = None,
    jars: Sequence[Path] = (),
    class_path: Sequence[Path] = (),
) -> SparkSession:
    """A session with our defaults below the user's confs; the one that runs already, if any.

    `quick` starts sooner and computes a little slower: for checks and short jobs. `jars` go to
    the executors too; those on the `class_path` are there before Spark's own file systems.
    """
    if os.environ.get("SPARK_REMOTE") or os.environ.get("SPARK_CONNECT_MODE_ENABLED"):
        raise NotReady.of(
            "SPARK_CONNECT",
            "Spark Connect is not supported: Evertable needs a classic Spark session",
            hint="unset SPARK_REMOTE and SPARK_CONNECT_MODE_ENABLED",
        )
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    logging.getLogger("py4j").addHandler(logging.NullHandler())  # it prints stacks of callbacks
    for logger in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(logger).setLevel(logging.CRITICAL + 1)  # they print whole stacks
    final = all_confs(confs, logs=logs, quick=quick)
    final |= _with_jars(final, jars, class_path)
    if SparkContext._active_spark_context is None:
        java = find_java()
        _prepare_environment(java, root)
        given = classes.flags(java) if jvm_flags is None else jvm_flags
        final[JVM_FLAGS] = f"{given} {final[JVM_FLAGS]}".strip()
    builder = SparkSession.builder.appName(name)
    for key, value in final.items():
        builder = builder.config(key, value)
    if SparkContext._active_spark_context is not None:
        _must_have(SparkContext._active_spark_context, jars)
    log = JvmLog(logs)
    try:
        with log.inherited(), printed.inherited(), _interrupts_blocked():
            return builder.getOrCreate()
    except Exception as e:
        raise _not_started(e, log) from e


def all_confs(confs: Mapping[str, str], *, logs: str, quick: bool = False) -> dict[str, str]:
    """Our defaults with the user's confs on top; JVM flags are joined, not replaced."""
    user = {_full_name(key): value for key, value in confs.items()}
    master = user.get("spark.master", "local[*]")
    result = {
        "spark.master": master,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.variable.substitute": "false",  # ${x} is ours, and filled in before
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        SOURCE_EVOLUTION: "true",
        "spark.sql.warehouse.dir": os.path.join(os.path.dirname(logs), "warehouse"),
    }
    if is_local(master):
        result |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": str(cores(master)),
            "spark.sql.streaming.checkpointFileManagerClass": FILE_MANAGER,
        }
    result |= user
    flags = [
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}",
        QUICK if quick else "",
        user.get(JVM_FLAGS, ""),
    ]
    result[JVM_FLAGS] = " ".join(flag for flag in flags if flag)
    return result


def _with_jars(
    confs: Mapping[str, str], jars: Sequence[Path], class_path: Sequence[Path]
) -> dict[str, str]:
    """Our jars beside those that the user names."""
    given = {
        "spark.jars": (",", jars),
        "spark.driver.extraClassPath": (os.pathsep, class_path),
        "spark.executor.extraClassPath": (os.pathsep, class_path),
    }
    return {
        conf: sep.join([*(str(f) for f in files), *filter(None, [confs.get(conf)])])
        for conf, (sep, files) in given.items()
        if files
    }


def _must_have(context: SparkContext, jars: Sequence[Path]) -> None:
    """A Spark that runs already takes no jars any more."""
    there = {
        os.path.basename(jar) for jar in (context.getConf().get("spark.jars") or "").split(",")
    }
    missing = [jar for jar in jars if jar.name not in there]
    if missing:
        raise NotReady.of(
            "CONNECTOR_NOT_LOADED",
            f"Spark runs already, without {missing[0].name}",
            hint="stop the session that runs (spark.stop()), and let Evertable start it; or start "
            f"it with spark.jars={','.join(str(jar) for jar in missing)}",
        )


def for_table(session: SparkSession, confs: Mapping[str, str]) -> SparkSession:
    """A session of its own for one table: its own views and confs, the same Spark."""
    own = session.newSession()
    # A new session starts from the context's conf, not from what was set in the session it is from.
    of_a_table(own, confs)
    return own


def of_a_table(own: SparkSession, confs: Mapping[str, str]) -> None:
    """Confs that a table's session has for itself."""
    for key, value in confs.items():
        if own.conf.isModifiable(key):
            own.conf.set(key, value)


def make_active(session: SparkSession) -> None:
    """Spark looks some things up in the session that is active in a thread, whoever asks."""
    jvm: Any = session._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)


def of_a_query(conf: str) -> bool:
    """Confs of a session; the others belong to Spark as a whole and are set at its start."""
    return conf.startswith("spark.sql.") and conf != "spark.sql.warehouse.dir"


def end() -> None:
    """Stop Spark and wait until its JVM is gone."""
    from pyspark import SparkContext

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway
    if context is not None:
        context.stop()
    if gateway is not None:
        gateway.shutdown()
        process = getattr(gateway, "proc", None)
        if process is not None:
            process.stdin.close()
            process.wait()


def kill() -> None:
    """End the JVM at once; the batch that runs is replayed at the next start."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.kill()


def is_local(master: str) -> bool:
    """Whether driver and tasks are one process on this machine (local-cluster is not)."""
    return re.match(r"local(\[|$)", master) is not None


def cores(master: str) -> int:
    """How many tasks run at once: local[4] is 4, local[*] all cores."""
    match = re.match(r"local\[(\d+)", master)
    if match:
        return int(match[1])
    return len(os.sched_getaffinity(0)) if master.startswith("local[*") else 1


def _full_name(key: str) -> str:
    return "spark.master" if key == "master" else key


def _prepare_environment(java: Java, root: str) -> None:
    os.environ["JAVA_HOME"] = java.home
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else a worker may be another Python
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(p for p in paths if p))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """The JVM and its Python workers inherit this: Ctrl-C is for us alone, who stop in good order.

    A terminal sends it to every process; a worker that dies of it would fail the running batch.
    For ourselves it is put off until Spark is up: a Python that ends in between leaves a JVM that
    waits for ever.
    """
    asked: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT)
    if main:
        signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if main:  # Spark has set one of its own
            signal.signal(signal.SIGINT, handler)
    if asked:
        raise KeyboardInterrupt


def _not_started(error: Exception, log: JvmLog) -> EvertableError:
    if isinstance(error, EvertableError):
        return error
    tail = log.tail()
    reason = next((line for line in reversed(tail) if "rror" in line or "xception" in line), "")
    return NotReady.of(
        "SPARK_NOT_STARTED",
        "Spark did not start",
        detail=reason.strip() or str(error).partition("\n")[0],
        hint=f"the whole output is in {log.path}; `evertable doctor` looks at Java",
    )
