"""Every error of Spark's that was ever met becomes one finding of ours, never a stack."""

from __future__ import annotations

import re

import pytest

from evertable.errors import EvertableError
from evertable.location import Location
from evertable.spark.error_rules import RULES
from evertable.spark.errors import explain

PLACE = Location("ads.yaml", 7)

# What Spark, Kafka, Delta and Python said when these things were done for real.
MET = {
    "[TABLE_OR_VIEW_NOT_FOUND] The table or view `clks` cannot be found.": "NAME_UNKNOWN",
    "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `adx` "
    "cannot be resolved. Did you mean one of the following? [`ad`, `at`].": "COLUMN_UNKNOWN",
    "[UNRESOLVED_ROUTINE] Cannot resolve routine `foo` on search path": "FUNCTION_UNKNOWN",
    "\n[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. (line 1, pos 9)": "SQL_INVALID",
    "[DATATYPE_MISMATCH.PARAMETER_CONSTRAINT_VIOLATION] Cannot resolve: The "
    "`slide_duration`(600000000L) must be <= the `window_duration`(300000000L)": "WINDOW_INVALID",
    "Detected pattern of possible 'correctness' issue due to global watermark.":
        "CHAIN_NOT_SUPPORTED",
    "Watermark must be specified in the query using '[Dataset/DataFrame].withWatermark()' for "
    "using event-time timeout in a applyInPandasWithState.": "WATERMARK_MISSING",
    "[AVRO_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE] Cannot call the FROM_AVRO SQL function":
        "CONNECTOR_MISSING",
    "[PROTOBUF_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE] Cannot call FROM_PROTOBUF": "CONNECTOR_MISSING",
    "[AVRO_DATA_SOURCE_NOT_ENABLED] Failed to find data source: avro": "CONNECTOR_MISSING",
    "[MALFORMED_PROTOBUF_MESSAGE] Malformed Protobuf messages are detected": "RECORD_INVALID",
    "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function":
        "USER_CODE_FAILED",
    "org.apache.kafka.common.config.ConfigException: Invalid value abc for configuration "
    "request.timeout.ms: Not a number of type INT": "OPTION_INVALID",
    "Append output mode not supported when there are streaming aggregations on streaming "
    "DataFrames/DataSets without watermark": "WATERMARK_MISSING",
    "[STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION] Invalid streaming output mode: complete. This "
    "output mode is not supported for no streaming aggregations": "MODE_NOT_SUPPORTED",
    "Global aggregation with session window in streaming query is not supported.":
        "QUERY_NOT_STREAMABLE",
    "Redefining watermark is disallowed. You can set the config": "WATERMARK_TWICE",
    "More than one event time columns are available": "EVENT_TIME_TWICE",
    "[STREAMING_QUERY_EVOLUTION_ERROR.DUPLICATE_SOURCE_NAMES] Duplicate streaming source names "
    "detected: 'bids'": "SOURCE_UNNAMED",
    "Stream-stream join without equality predicate is not supported": "JOIN_UNBOUNDED",
    "Stream-stream LeftOuter join between two streaming DataFrame/Datasets is not supported "
    "without a watermark in the join keys": "JOIN_UNBOUNDED",
    "Stateful streaming queries does not support async progress tracking at this moment.":
        "TRIGGER_NOT_SUPPORTED",
    "Sink ForeachBatchSink does not support async progress tracking": "TRIGGER_NOT_SUPPORTED",
    "Async progress tracking cannot be used with AvailableNow trigger": "TRIGGER_NOT_SUPPORTED",
    "Continuous processing does not support EventTimeWatermark operations.":
        "TRIGGER_NOT_SUPPORTED",
    "'foreachBatch' is not supported with continuous trigger.": "TRIGGER_NOT_SUPPORTED",
    "[STREAMING_REAL_TIME_MODE.OUTPUT_MODE_NOT_SUPPORTED] append": "TRIGGER_NOT_SUPPORTED",
    "[STREAMING_REAL_TIME_MODE.OPERATOR_OR_SINK_NOT_IN_ALLOWLIST] noop": "TRIGGER_NOT_SUPPORTED",
    "[INVALID_STREAMING_REAL_TIME_MODE_TRIGGER_INTERVAL] 1 second": "TRIGGER_NOT_SUPPORTED",
    "maxOffsetsPerTrigger is not compatible with real time mode": "TRIGGER_NOT_SUPPORTED",
    "[CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT] needs 3 slots": "SLOTS_TOO_FEW",
    "[KAFKA_DATA_SOURCE_NOT_ENABLED] Failed to find data source: kafka. Please deploy":
        "CONNECTOR_MISSING",
    ":: UNRESOLVED DEPENDENCIES :: org.apache.spark#spark-sql-kafka: not found":
        "CONNECTOR_MISSING",
    "java.lang.NoSuchMethodError: SerializedOffset.<init>(String)": "CONNECTOR_DOES_NOT_FIT",
    "NoSuchMethodError LogicalRDD.<init>": "CONNECTOR_DOES_NOT_FIT",
    "SparkView can not implement View, not an interface": "CONNECTOR_DOES_NOT_FIT",
    "KafkaIllegalStateException: Some data may have been lost because they are not available in "
    "Kafka any more; Reason: Could not read records in offset [100, 200)": "SOURCE_ROWS_LOST",
    "Partition T-0 offset was changed from 100 to 20. This could be either": "SOURCE_ROWS_LOST",
    "assertion failed: If startingOffsets contains specific offsets, you must specify all "
    "TopicPartitions.": "OPTION_INVALID",
    "No offset matched from request of topic-partition": "OPTION_INVALID",
    'For input string: "abc"': "OPTION_INVALID",
    "UnknownTopicOrPartitionException: This server does not host this topic-partition.":
        "TOPIC_MISSING",
    "TimeoutException: Timed out waiting for a node assignment. Call: listNodes":
        "BROKER_UNREACHABLE",
    "value attribute unsupported type int": "SINK_COLUMNS",
    "Required attribute 'value' not found": "SINK_COLUMNS",
    "java.net.ConnectException: Connection refused": "SOURCE_UNREACHABLE",
    "[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03": "PATH_MISSING",
    "[UNABLE_TO_INFER_SCHEMA] Unable to infer schema for JSON": "SCHEMA_MISSING",
    "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE] Provided value schema": "CHECKPOINT_FAILS",
    "[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema": "CHECKPOINT_FAILS",
    "[STATE_STORE_COMMIT_VALIDATION_FAILED] State store commit validation failed":
        "BATCH_NOT_EVALUATED",
    "batch _spark_metadata/0 doesn't exist": "SINK_BEHIND",
    "java.util.ConcurrentModificationException: Multiple streaming queries are concurrently using":
        "CHECKPOINT_IN_USE",
    "java.lang.AssertionError: assertion failed": "STATE_STORE_CRASHED",
    "[CAST_INVALID_INPUT] The value 'x' of the type \"STRING\" cannot be cast": "VALUE_CAST",
    "[DIVIDE_BY_ZERO] Division by zero": "VALUE_CAST",
    "[INVALID_ARRAY_INDEX] The index 9 is out of bounds": "VALUE_CAST",
    "[MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION] Malformed records are detected":
        "RECORD_INVALID",
    "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.":
        "SPARK_NOT_STARTED",
    "java.io.IOException: No space left on device": "DISK_FULL",
    "java.io.FileNotFoundException: /x (Permission denied)": "FOLDER_NOT_WRITABLE",
    "database or disk is full": "DISK_FULL",
    "database is locked": "SINK_LOCKED",
    "Total size of serialized results of 9 tasks (1.2 GiB) is bigger than "
    "spark.driver.maxResultSize (1024.0 MiB)": "BATCH_TOO_LARGE",
    "java.lang.OutOfMemoryError: Java heap space": "MEMORY_FULL",
    "Sorting is not supported on streaming DataFrames/Datasets, unless": "QUERY_NOT_STREAMABLE",
    "Distinct aggregations are not supported on streaming": "QUERY_NOT_STREAMABLE",
    "Limits are not supported on streaming DataFrames/Datasets in Update output mode":
        "QUERY_NOT_STREAMABLE",
    "LeftAnti joins with a streaming DataFrame/Dataset on the right": "QUERY_NOT_STREAMABLE",
    "Except on a streaming DataFrame/Dataset on the right is not supported":
        "QUERY_NOT_STREAMABLE",
    "Non-time-based windows are not supported on streaming DataFrames": "QUERY_NOT_STREAMABLE",
    "[USER_RAISED_EXCEPTION] EVERTABLE_BAD_RECORD of s: no json": "RECORD_INVALID",
    "Python worker exited unexpectedly (crashed)": "PYTHON_WORKER_DIED",
    "driver worker exited unexpectedly": "PYTHON_WORKER_DIED",
}  # fmt: skip


class FromSpark(Exception):
    pass


FromSpark.__module__ = "pyspark.errors"


@pytest.mark.parametrize(("text", "code"), MET.items(), ids=lambda v: v[:40])
def test_each_text_has_its_finding(text, code):
    finding = explain(FromSpark(text), 'table "t"', PLACE)
    assert finding.code == code
    assert finding.place.file == "ads.yaml"
    assert 'table "t"' in finding.message
    assert "{" not in finding.message + finding.hint.replace("{spark.", "")


def test_no_rule_is_without_a_text_that_meets_it():
    for rule in RULES:
        if rule.code in ("QUERY_TOO_DEEP", "WATERMARK_TYPE"):
            continue
        assert any(re.search(rule.pattern, text) for text in MET) or rule.pattern.startswith(
            r"\[PARSE_|"
        ), rule.pattern


def test_what_no_rule_knows_is_still_one_finding():
    finding = explain(FromSpark("something new\n\tat org.apache.Foo(Foo.scala:1)"), "table", PLACE)
    assert finding.code == "SPARK_FAILED"
    assert finding.spark == "something new"


def test_control_characters_and_secrets_do_not_pass(monkeypatch):
    from evertable.spark.secrets import resolve

    monkeypatch.setenv("PW", "hunter22")
    resolve({"password": "${secret:PW}"}, "x", None)
    finding = explain(
        FromSpark("cannot log in with hunter22 at pg://me:pass@host:1/db"), "t", PLACE
    )
    assert "hunter22" not in finding.spark
    assert "me:pass" not in finding.spark
    assert "host:1" in finding.spark


# -- the same, from a real Spark -------------------------------------------------------------------

REAL = [
    ("SELECT * FROM clikcs", "append", "NAME_UNKNOWN", 'did you mean "clicks"?'),
    ("SELECT adx FROM clicks", "append", "COLUMN_UNKNOWN", ""),
    ("SELECT nofun(ad) FROM clicks", "append", "FUNCTION_UNKNOWN", ""),
    ("SELECT ad FORM clicks", "append", "SQL_INVALID", ""),
    ("SELECT ad, count(*) FROM clicks GROUP BY ad", "append", "WATERMARK_MISSING", "watermark"),
    ("SELECT ad FROM clicks", "complete", "MODE_NOT_SUPPORTED", ""),
    (
        "SELECT session_window(at, '5 minutes') AS w, count(*) AS n FROM timed GROUP BY 1",
        "update",
        "MODE_NOT_SUPPORTED",
        "",
    ),
    ("SELECT a.ad FROM clicks a LEFT JOIN clicks b ON a.ad = b.ad", "append", "JOIN_UNBOUNDED", ""),
    ("SELECT * FROM t", "append", "TABLE_CYCLE", "circle"),
    ("SELECT ad FROM loop", "append", "VIEW_CYCLE", ""),
]


@pytest.mark.parametrize(("sql", "mode", "code", "hint"), REAL, ids=[r[0][:40] for r in REAL])
def test_a_real_refusal_has_its_finding_before_the_start(kit, sql, mode, code, hint):
    (kit.folder / "in").mkdir()
    p = kit.yaml(f"""
name: p
streams:
  clicks: {{format: json, path: in, schema: "ad STRING, at TIMESTAMP"}}
  timed:
    {{format: json, path: in, schema: "at TIMESTAMP", watermark: {{column: at, delay: 1 minute}}}}
views:
  loop: SELECT * FROM pool
  pool: SELECT * FROM loop
tables:
  t:
    query: |
      {sql}
    output_mode: {mode}
    sink: console
""")
    with pytest.raises(EvertableError) as e:
        kit.run(p)
    finding = e.value.findings[0]
    assert finding.code == code
    assert hint in finding.hint
    assert finding.place.line >= 6
    assert "\tat " not in str(finding) + finding.spark
    assert not (kit.folder / ".evertable/p/checkpoints/t/offsets").exists()


def test_the_line_inside_the_query_is_named(kit):
    (kit.folder / "in").mkdir()
    p = kit.yaml("""
name: p
streams:
  clicks: {format: json, path: in, schema: "ad STRING"}
tables:
  t:
    query: |
      SELECT ad,
             adx
      FROM clicks
    sink: console
""")
    with pytest.raises(EvertableError) as e:
        kit.run(p)
    text = kit.file.read_text().splitlines()
    assert text[e.value.findings[0].place.line - 1].strip() == "adx"


def test_a_value_that_does_not_cast_ends_the_table_with_its_reason(kit):
    kit.feed("in", "12", "twelve")
    p = kit.yaml("""
name: p
streams:
  s: {format: text, path: in}
tables:
  t: {query: SELECT CAST(value AS INT) AS n FROM s, trigger: available_now}
""")
    with pytest.raises(Exception, match='VALUE_CAST.*"twelve"'):
        kit.run(p)


def test_a_udf_that_raises_is_the_users_own_line(kit):
    kit.feed("in", "x")
    kit.write(
        "mine.py",
        """
        from pyspark.sql import functions as F

        def strict(value):
            raise KeyError(value)

        def t(s):
            return s.select(F.udf(strict)("value").alias("v"))
    """,
    )
    p = kit.yaml("""
name: p
streams:
  s: {format: text, path: in}
tables:
  t: {query: {python: "mine.py:t"}, trigger: available_now}
""")
    with pytest.raises(Exception, match=r"USER_CODE_FAILED mine.py:4.*KeyError: 'x'"):
        kit.run(p)


def test_a_function_that_fails_while_it_is_built(kit):
    (kit.folder / "in").mkdir()
    kit.write("broken.py", "def t(s):\n    return s.wrong()\n")
    kit.write("syntax.py", "def t(s)\n    return s\n")
    kit.write("frameless.py", "def t(s):\n    return 5\n")
    for reference, code in [
        ("broken.py:t", "USER_CODE_FAILED broken.py:2"),
        ("syntax.py:t", "USER_CODE_FAILED syntax.py:1"),
        ("frameless.py:t", "QUERY_INVALID"),
        ("gone.py:t", "FUNCTION_UNKNOWN"),
        ("broken.py:u", "FUNCTION_UNKNOWN"),
    ]:
        p = kit.yaml(f"""
name: p
streams:
  s: {{format: text, path: in}}
tables:
  t: {{query: {{python: "{reference}"}}, sink: console}}
""")
        with pytest.raises(EvertableError, match=code):
            kit.run(p)
