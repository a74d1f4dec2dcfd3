"""Files in a folder, as a stream (each new file is read once) or as a static table."""

from __future__ import annotations

from evertable.model import option_values as takes
from evertable.model.capabilities import MISPLACED, SourceCapabilities

_ANY_FORMAT = frozenset(
    {
        "path",
        "pathGlobFilter",
        "recursiveFileLookup",
        "modifiedBefore",
        "modifiedAfter",
        "ignoreCorruptFiles",
        "ignoreMissingFiles",
        "basePath",
    }
)
_STREAMING = frozenset(
    {
        "maxFilesPerTrigger",
        "maxBytesPerTrigger",
        "latestFirst",
        "maxFileAge",
        "fileNameOnly",
        "cleanSource",
        "sourceArchiveDir",
        "maxCachedFiles",
        "discardCachedInputRatio",
    }
)
_DATES = "dateFormat timestampFormat timestampNTZFormat timeZone locale"
_BY_FORMAT = {
    "text": "wholetext lineSep encoding compression",
    "csv": f"{_DATES} sep delimiter encoding charset quote escape comment header inferSchema "
    "preferDate enforceSchema ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace nullValue "
    "nanValue positiveInf negativeInf enableDateTimeParsingFallback maxColumns "
    "maxCharsPerColumn mode columnNameOfCorruptRecord multiLine charToEscapeQuoteEscaping "
    "samplingRatio emptyValue lineSep unescapedQuoteHandling compression codec extension "
    "singleVariantColumn",
    "json": f"{_DATES} primitivesAsString prefersDecimal allowComments allowUnquotedFieldNames "
    "allowSingleQuotes allowNumericLeadingZeros allowBackslashEscapingAnyCharacter "
    "allowUnquotedControlChars allowNonNumericNumbers mode columnNameOfCorruptRecord "
    "enableDateTimeParsingFallback multiLine encoding charset lineSep samplingRatio "
    "dropFieldIfAllNull compression singleVariantColumn",
    "parquet": "mergeSchema datetimeRebaseMode int96RebaseMode",
    "orc": "mergeSchema",
    "avro": "avroSchema avroSchemaUrl mode datetimeRebaseMode positionalFieldMatching "
    "recursiveFieldMaxDepth stableIdentifierPrefixForUnionType",
    "xml": f"{_DATES} rowTag samplingRatio excludeAttribute mode inferSchema "
    "columnNameOfCorruptRecord attributePrefix valueTag encoding charset "
    "ignoreSurroundingSpaces rowValidationXSDPath ignoreNamespace wildcardColName compression "
    "nullValue multiLine treatEmptyValuesAsNulls singleVariantColumn",
}

SOURCES = tuple(
    SourceCapabilities(
        formats=(format,),
        options=_ANY_FORMAT | _STREAMING | frozenset(options.split()),
        required=("path", "rowTag") if format == "xml" else ("path",),
        values={
            "maxfilespertrigger": takes.whole_number,
            "maxbytespertrigger": takes.whole_number,
            "maxcachedfiles": takes.whole_number,
            "latestfirst": takes.boolean,
            "filenameonly": takes.boolean,
            "recursivefilelookup": takes.boolean,
            "cleansource": takes.one_of("archive", "delete", "off"),
        },
        streaming_only=_STREAMING,
        misplaced=MISPLACED,
        takes_schema=format != "text",
        infers_schema=True,
        bounded=True,
        paths=("path", "sourceArchiveDir"),
        # A first batch over a full folder must not exhaust memory.
        cap=("maxBytesPerTrigger", str(256 * 1024 * 1024)),
        other_caps=("maxFilesPerTrigger",),
        connector="avro" if format == "avro" else None,
    )
    for format, options in _BY_FORMAT.items()
)
