"""What Spark, Java, Kafka and Python say when something fails, and what we say of it.

Read from the top: the first pattern found anywhere in an exception's texts wins.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """A pattern in Spark's text; `{0}` is what the user named, `{1}` the first group."""

    pattern: str
    code: str
    message: str
    hint: str = ""
    detail: str = ""


RULES: tuple[Rule, ...] = (
    # the query itself
    Rule(r"\[PARSE_SYNTAX_ERROR\][^']*'([^']*)'", "SQL_INVALID", "{0} is not SQL near {1}"),
    Rule(r"\[PARSE_|\[INVALID_SQL_SYNTAX", "SQL_INVALID", "{0} is not SQL that Spark reads"),
    Rule(
        r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view (?:`\w+`\.)*`([^`]+)`",
        "NAME_UNKNOWN",
        '{0} reads "{1}", which is no stream, static or view',
    ),
    Rule(
        r"\[UNRESOLVED_COLUMN\S*\] A column[^`]*`((?:[^`]|`\.`)+)`",
        "COLUMN_UNKNOWN",
        '{0} names column "{1}", which is not there',
    ),
    Rule(
        r"\[UNRESOLVED_ROUTINE\][^`]*`([^`]+)`",
        "FUNCTION_UNKNOWN",
        '{0} calls "{1}", which is no function',
    ),
    Rule(
        r"The `slide_duration`.*must be <= the `window_duration`",
        "WINDOW_INVALID",
        "{0} has a window that slides by more than its length",
        "the length comes first and the slide second: window(at, '10 minutes', '5 minutes')",
        "rows between two windows would be in none; were they swapped?",
    ),
    Rule(
        r"Append output mode not supported when there are streaming aggregations|"
        r"STREAMING_OUTPUT_MODE\.UNSUPPORTED_OPERATION\][^.]*append.*?watermark",
        "WATERMARK_MISSING",
        "{0} aggregates in append mode without a watermark on what it groups by",
        "give the stream a `watermark` and group by that time or a window of it, "
        "or use output_mode: update",
        "append emits a group only after the watermark has passed it: no row would ever come",
    ),
    Rule(
        r"Redefining watermark is disallowed|REDEFINE_WATERMARK|EVENT_TIME_IS_NOT_UNIQUE",
        "WATERMARK_TWICE",
        "{0} has a watermark defined twice",
        "keep one watermark a stream; combine the streams after it",
    ),
    Rule(
        r"More than one event time columns|MULTIPLE_EVENT_TIME_COLUMNS",
        "EVENT_TIME_TWICE",
        "{0} carries two event-time columns into one operator",
        "select one of them before it",
    ),
    Rule(
        r"EVENT_TIME_IS_NOT_ON_TIMESTAMP_TYPE\][^\"]*\"?([^\" ]+)",
        "WATERMARK_TYPE",
        "{0} has a watermark on a column that is no timestamp",
        "cast it in `schema`, or in a view before the watermark",
    ),
    Rule(
        r"Sorting is not supported on streaming",
        "QUERY_NOT_STREAMABLE",
        "{0} sorts rows that never end",
        "sort when reading the table; or sort groups, in output_mode: complete",
    ),
    Rule(
        r"Distinct aggregations are not supported on streaming",
        "QUERY_NOT_STREAMABLE",
        "{0} counts distinct values of a stream",
        "approx_count_distinct(…), or SELECT DISTINCT in a view and count its rows",
    ),
    Rule(
        r"Global aggregation with session window in streaming",
        "QUERY_NOT_STREAMABLE",
        "{0} groups by a session alone",
        "group by a key too: a session is one of somebody",
    ),
    Rule(
        r"Limits are not supported on streaming",
        "QUERY_NOT_STREAMABLE",
        "{0} has a limit in update mode",
        "output_mode: append or complete, or limit when reading the table",
    ),
    Rule(
        r"LeftAnti joins with a streaming",
        "QUERY_NOT_STREAMABLE",
        "{0} has an anti join with a stream on its right",
        "a left outer join with a range of time gives the same rows: those with NULL on the right",
    ),
    Rule(
        r"\b(?:Except|Intersect) (?:on|between) [^\n]*streaming",
        "QUERY_NOT_STREAMABLE",
        "{0} takes rows of one stream away by those of another",
        "a left semi join, or a left outer join with a range of time",
    ),
    Rule(
        r"STREAMING_OUTPUT_MODE|[Oo]utput mode not supported|output mode is not supported|"
        r"[Oo]utputMode.{0,40}not supported|"
        r"not supported in (?:Append|Update|Complete) output mode|"
        r"in (?:append|update|complete) output mode",
        "MODE_NOT_SUPPORTED",
        "{0} cannot run in this output mode",
        "Spark's line says which ones it takes; most queries run in append",
    ),
    Rule(
        r"without equality predicate|implicit cartesian product|CARTESIAN",
        "JOIN_UNBOUNDED",
        "{0} joins streams without an equality",
        "join on an equal column, and on a range of time",
    ),
    Rule(
        r"Detected pattern of possible 'correctness' issue",
        "CHAIN_NOT_SUPPORTED",
        "{0} computes on rows that another operator may still change",
        "output_mode: append, in which each operator gives final rows to the next one",
        "several stateful operators in a row need rows that are final",
    ),
    Rule(
        r"Event-time timeout not supported without watermark|"
        r"Watermark must be specified in the query",
        "WATERMARK_MISSING",
        "{0} has timeouts by event time and no watermark",
        "give the stream a `watermark`",
        "nothing else would tell that their time has come",
    ),
    Rule(
        r"[Ss]tream-stream .*join.*(?:watermark|time range)|"
        r"(?:Outer|outer|Semi|semi) join.*watermark",
        "JOIN_UNBOUNDED",
        "{0} joins streams in a way that needs watermarks and a range of time",
        "give both streams a watermark, and join ON … AND b.time BETWEEN a.time AND a.time + …",
    ),
    Rule(
        r"DUPLICATE_SOURCE_NAMES|UNNAMED_STREAMING_SOURCES",
        "SOURCE_UNNAMED",
        "{0} uses one DataFrame twice, or a source that has no name",
        "name streams as parameters, each in its place",
    ),
    # continuous, asynchronous and real-time triggers
    Rule(
        r"[Aa]sync progress tracking",
        "TRIGGER_NOT_SUPPORTED",
        "{0} cannot use asynchronous progress tracking",
        "it is for stateless queries into kafka, console, memory or noop; leave it out",
    ),
    Rule(
        r"[Cc]ontinuous processing does not support|not supported with continuous trigger",
        "TRIGGER_NOT_SUPPORTED",
        "{0} cannot run with a continuous trigger",
        "continuous takes map-like queries and the sinks kafka, console, memory and noop",
    ),
    Rule(
        r"STREAMING_REAL_TIME_MODE|REAL_TIME_MODE_TRIGGER_INTERVAL|real time mode",
        "TRIGGER_NOT_SUPPORTED",
        "{0} cannot run in real time",
        "real time takes update mode, 5 seconds or more, source kafka, sinks kafka and console",
    ),
    Rule(
        r"CONCURRENT_SCHEDULER_INSUFFICIENT_SLOT",
        "SLOTS_TOO_FEW",
        "{0} needs more task slots than there are",
        "raise the cores: --master local[N]",
    ),
    # sources
    Rule(
        r"KAFKA_DATA_SOURCE_NOT_ENABLED|UNRESOLVED DEPENDENCIES|"
        r"\[DATA_SOURCE_NOT_FOUND\][^:]*: (\S+?)\.",
        "CONNECTOR_MISSING",
        "{0} needs a connector that is not on this machine",
        "`evertable doctor` says which one and how to get it",
    ),
    Rule(
        r"(AVRO|PROTOBUF)_NOT_LOADED_SQL_FUNCTIONS_UNUSABLE|(AVRO)_DATA_SOURCE_NOT_ENABLED",
        "CONNECTOR_MISSING",
        "{0} uses {1}, whose connector is not loaded",
        "a stream with `decode` in that format brings it along; else name it in spark.jars",
    ),
    Rule(
        r"NoSuchMethodError|SparkView can not implement|AbstractMethodError|NoClassDefFoundError",
        "CONNECTOR_DOES_NOT_FIT",
        "{0} uses a connector built for another version of Spark",
        "use the connector of exactly this Spark version",
    ),
    Rule(
        r"Some data may have been lost|[Oo]ffset was changed from|partition [^ ]+ (?:is|are) gone",
        "SOURCE_ROWS_LOST",
        "{0} lost rows before they were read",
        "raise the topic's retention; to go on without them: failOnDataLoss: false",
    ),
    Rule(
        r"you must specify all TopicPartitions|No offset matched from request",
        "OPTION_INVALID",
        "{0} starts from offsets that do not fit the topic",
        "name every partition, or use startingOffsetsByTimestampStrategy: latest",
    ),
    Rule(
        r"UnknownTopicOrPartition|does not host this topic-partition",
        "TOPIC_MISSING",
        "{0} reads a topic that does not exist",
        "create the topic, or correct `subscribe`",
    ),
    Rule(
        r"Timed out waiting for a node assignment|Failed to construct kafka|"
        r"No resolvable bootstrap",
        "BROKER_UNREACHABLE",
        "{0} cannot reach its Kafka broker",
        "start the broker, or correct kafka.bootstrap.servers",
    ),
    Rule(
        r"value attribute unsupported type|Required attribute '(\w+)' not found|"
        r"headers? attribute",
        "SINK_COLUMNS",
        "{0} does not have the columns that a Kafka sink takes",
        "value (string or binary), and optionally key, headers, topic, partition",
    ),
    Rule(
        r"Connection refused|ConnectException|UnknownHostException",
        "SOURCE_UNREACHABLE",
        "{0} cannot reach its host",
        "start what listens there, or correct host and port",
    ),
    Rule(
        r"\[PATH_NOT_FOUND\] Path does not exist: (\S+?)\.? ",
        "PATH_MISSING",
        '{0} reads "{1}", which does not exist',
        "make the folder, or correct `path`",
    ),
    Rule(
        r"UNABLE_TO_INFER_SCHEMA|Schema must be specified",
        "SCHEMA_MISSING",
        "{0} has no schema, and there is no data yet to infer it from",
        'give it one: schema: "ad STRING, at TIMESTAMP"',
    ),
    Rule(
        r"EVERTABLE_BAD_RECORD of \w+: ([^\n]*)",
        "RECORD_INVALID",
        "{0} met a record that does not decode: {1}",
        "on_bad_record: null lets NULLs through instead",
    ),
    Rule(
        r"MALFORMED_RECORD|MALFORMED_PROTOBUF_MESSAGE|Malformed records are detected",
        "RECORD_INVALID",
        "{0} met a record that does not decode",
        "on_bad_record: null lets NULLs through instead",
    ),
    Rule(
        r"ConfigException: (?:Invalid value|Missing required configuration)[^\n]*?"
        r"(?:configuration|for) \"?([\w.]+)",
        "OPTION_INVALID",
        "{0} has a value that Kafka's client does not take: {1}",
        "correct that option, with `kafka.` before its name; Spark's line has the value",
    ),
    Rule(
        r"For input string: \"([^\"]*)\"|Invalid value '([^']*)' for option|INVALID_OPTION",
        "OPTION_INVALID",
        "{0} has an option with a value that is no number",
    ),
    # checkpoint and state
    Rule(
        r"STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE|STATE_STORE.*INCOMPATIBLE|"
        r"STREAMING_STATEFUL_OPERATOR_(?:NOT_MATCH|MISMATCH)|"
        r"STREAMING_QUERY_EVOLUTION_ERROR|CHECKPOINT_RELATED",
        "CHECKPOINT_FAILS",
        "{0} no longer fits its checkpoint",
        "take the edit back, or `evertable drop` the table and start over",
        "the query's state was made by a query with other keys, aggregates or sources",
    ),
    Rule(
        r"STATE_STORE_COMMIT_VALIDATION_FAILED",
        "BATCH_NOT_EVALUATED",
        "{0} left a batch without reading it",
        "the sink's function must use the whole DataFrame exactly once, "
        "also when it writes nothing",
    ),
    Rule(
        r"_spark_metadata/\d+ (?:doesn't|does not) exist|No files? found in.*_spark_metadata",
        "SINK_BEHIND",
        "the folder of {0} has lost its log of batches",
        "restore `_spark_metadata`, or `evertable drop` the table and start over",
    ),
    Rule(
        r"ConcurrentModificationException|Multiple streaming queries are concurrently using|"
        r"CONCURRENT_STREAM_LOG_UPDATE",
        "CHECKPOINT_IN_USE",
        "the checkpoint of {0} is written by another query",
        "stop the other one first",
    ),
    Rule(
        r"AssertionError.*|java\.lang\.AssertionError",
        "STATE_STORE_CRASHED",
        "the state store of {0} failed a check of its own",
        "aggregation followed by dropDuplicates does this on RocksDB: try spark: "
        "{{spark.sql.streaming.stateStore.providerClass: org.apache.spark.sql.execution."
        "streaming.state.HDFSBackedStateStoreProvider}}",
    ),
    # values, under ANSI
    Rule(
        r"\[CAST_INVALID_INPUT\] The value '([^']*)'",
        "VALUE_CAST",
        '{0} met "{1}", which does not cast',
        "use try_cast, which gives NULL instead of ending the query",
    ),
    Rule(
        r"\[(?:CAST_OVERFLOW|ARITHMETIC_OVERFLOW|NUMERIC_VALUE_OUT_OF_RANGE|DIVIDE_BY_ZERO|"
        r"INVALID_ARRAY_INDEX|CANNOT_PARSE_TIMESTAMP|CAST_)",
        "VALUE_CAST",
        "{0} met a value that does not fit",
        "use try_cast, try_add, try_divide, try_to_timestamp: they give NULL instead",
    ),
    # the machine
    Rule(
        r"JAVA_GATEWAY_EXITED",
        "SPARK_NOT_STARTED",
        "Spark did not start for {0}",
        "`evertable doctor` looks at Java",
    ),
    Rule(
        r"No space left on device|ENOSPC|Disk quota exceeded|disk is full",
        "DISK_FULL",
        "the disk is full: {0} cannot go on",
        "make room and run again; the batch that was running is replayed",
    ),
    Rule(
        r"Permission denied|EACCES|readonly database|mkdir of file:.* failed|Mkdirs failed|"
        r"Read-only file system",
        "FOLDER_NOT_WRITABLE",
        "{0} may not write where it has to",
        "give it a folder that it may write",
    ),
    Rule(
        r"database is locked",
        "SINK_LOCKED",
        "the file of {0} is locked by another program",
        "something holds a write lock on it for over 30 seconds: read it with mode=ro",
    ),
    Rule(
        r"spark\.driver\.maxResultSize",
        "BATCH_TOO_LARGE",
        "a batch of {0} is larger than the driver takes",
        "a smaller cap a batch (maxBytesPerTrigger), or spark: {{spark.driver.maxResultSize: 4g}}",
    ),
    Rule(
        r"OutOfMemoryError|Java heap space|GC overhead",
        "MEMORY_FULL",
        "{0} ran out of memory",
        "a smaller cap a batch, or spark: {{spark.driver.memory: 4g}}",
    ),
    Rule(
        r"FOREACH_BATCH_USER_FUNCTION_ERROR|FOREACH_USER_FUNCTION_ERROR",
        "USER_CODE_FAILED",
        "your code failed in {0}",
        "the batch is kept and comes again after the next start",
    ),
    Rule(
        r"driver worker exited unexpectedly|Python worker exited unexpectedly",
        "PYTHON_WORKER_DIED",
        "a Python worker of {0} died",
        "it may have run out of memory; stateful Python also needs protobuf and grpcio",
    ),
    Rule(r"StackOverflowError", "QUERY_TOO_DEEP", "{0} is nested too deep for Spark to plan"),
    Rule(
        r"(?:is|are) not supported (?:on|with|between|by|after) [^\n]*[Ss]treaming",
        "QUERY_NOT_STREAMABLE",
        "{0} does what Spark cannot do with a stream",
        "do it in a batch job over the table, or see the guide of Structured Streaming for "
        "unsupported operations",
    ),
)
