"""Random expressions of SQL, of each kind of value: what ``generate.py`` puts into statements."""

from __future__ import annotations

import random
from typing import Any


def listed(text: str) -> list[str]:
    """What stands between semicolons."""
    return [one.strip() for one in text.split(";")]


TEXTS = [
    *("", " 42", "Abc ", "line\nbreak"),
    *listed("""a; b; abc; 42; -7; 3.7; 1e3; 1.0E7; true; FALSE; yes; x%y_z; É; a,b,c; 12:34:56; 2026-02-29;
        99999999999; 2026-03-29 02:30:00; 2026-10-25 02:30:00; 1999-12-31T23:59:59; NaN; host.example; 10.1.2.3;
        k=v&l=w; 2147483648; -9223372036854775808; 127; 0x1F"""),
]
DOCUMENTS = [
    *("", ' {"a":1} '),
    *listed("""{"a": 1, "b": [1, 2, {"c": "x"}]}; {"a": "1"}; {"a": null}; {"a": {"b": 1.50, "a": true}}; [1, 2]; 7;
        null; "text"; {broken; {"a": [ ]}; {"a": 1e400}; {"a": 9007199254740993}; {"a": "2026-01-01"}; {"a": "é\\n"};
        {"b": {"z": 1, "a": 2}, "a": false}"""),
]
PATHS = listed("$.a; $.b; $.a.b; $.b[0]; $.b[2].c; $[0]; $; $.b[*]; lax $.a; strict $.a; $.b.a; $..a")
ZONES = listed("Europe/Berlin; America/New_York; UTC; Asia/Kolkata; Australia/Lord_Howe; GMT+05:00; PST")
UNITS = listed("SECOND; MINUTE; HOUR; DAY; MONTH; YEAR; WEEK; QUARTER")
TYPES = listed("""TINYINT; SMALLINT; INT; BIGINT; FLOAT; DOUBLE; BOOLEAN; STRING; VARCHAR(3); CHAR(4); DATE; TIME;
    TIMESTAMP(0); TIMESTAMP(3)""")  # without DECIMAL: the first text that is none is 0 in Flink


class Expressions:
    """Drawn from ``drawn``."""

    def __init__(self, drawn: random.Random) -> None:
        self._random = drawn

    def value(self, kind: str, depth: int = 2) -> str:
        """An expression of a kind; ``kind`` is a key of KINDS."""
        ends, forms = (listed(part) for part in KINDS[kind])
        form: str = self._one(forms if depth > 0 and self._random.random() < 0.8 else ends)
        text = ""
        while "{" in form:
            before, _, rest = form.partition("{")
            name, _, form = rest.partition("}")
            text += before + self._filled(name, depth)
        return text + form

    def _filled(self, name: str, depth: int) -> str:
        match name:
            case "path":
                return f"'{self._one(PATHS)}'"
            case "zone":
                return f"'{self._one(ZONES)}'"
            case "unit":
                return str(self._one(UNITS))
            case "type":
                return str(self._one(TYPES))
            case "text":
                return f"'{self._one(TEXTS)}'"
            case "small":
                return str(self._one([0, 1, 2, 3, -1, -2]))
            case "any":
                return self.value(self._one(list(KINDS)), depth - 1)
        return self.value(name, depth - 1)

    def _one(self, values: list[Any]) -> Any:
        return self._random.choice(values)


KINDS: dict[str, tuple[str, str]] = {
    "int": (
        """
        n ; n ; 0 ; 1 ; -1 ; 7 ; 2147483647 ; -2147483648 ; CAST(NULL AS INT)
        """,
        """
        ({int} + {int}) ; ({int} - {int}) ; ({int} * {int}) ; {int} / 3 ; {int} % 7 ; MOD({int}, -4) ;
        -({int}) ; ABS({int}) ; SIGN({int}) ; CHAR_LENGTH({string}) ; POSITION({text} IN {string}) ;
        CAST({double} AS INT) ; TRY_CAST({string} AS INT) ; CASE WHEN {bool} THEN {int} ELSE {int} END ;
        COALESCE({int}, {int}) ; NULLIF({int}, {int}) ; GREATEST({int}, {int}) ; LEAST({int}, {int}, {int}) ;
        IF({bool}, {int}, {int}) ; ASCII({string}) ; INSTR({string}, {text}) ;
        LOCATE({text}, {string}, {small}) ; IFNULL({int}, {int}) ; TIMESTAMPDIFF({unit}, {time}, {time}) ;
        TIMESTAMPDIFF(DAY, ts, t) ; ROUND({int}, {small}) ; CARDINALITY(SPLIT({string}, ',')) ;
        REGEXP_COUNT({string}, '[a-c]') ; CASE n WHEN 1 THEN {int} WHEN 2 THEN 5 END ;
        JSON_VALUE({json}, {path} RETURNING INT DEFAULT 3 ON EMPTY DEFAULT 4 ON ERROR)
        """,
    ),
    "bigint": (
        """
        b ; b ; 4000000000 ; 9223372036854775807 ; CAST(n AS BIGINT)
        """,
        """
        ({bigint} + {int}) ; ({bigint} * {int}) ; ({bigint} - {bigint}) ; {bigint} / 7 ; MOD({bigint}, 11) ;
        EXTRACT({unit} FROM {time}) ; TRY_CAST({string} AS BIGINT) ; CAST({decimal} AS BIGINT) ;
        YEAR({time}) ; WEEK({time}) ; DAYOFWEEK({time}) ; HOUR({time}) ; CAST({double} AS BIGINT) ;
        QUARTER({time}) ; EXTRACT(MILLISECOND FROM {time}) ; EXTRACT(EPOCH FROM {time}) ;
        EXTRACT(DOY FROM {time}) ; ABS({bigint}) ; EXTRACT(ISODOW FROM {time}) ;
        EXTRACT(ISOYEAR FROM {time}) ; UNIX_TIMESTAMP({stamp}) ; SIGN({bigint}) ;
        EXTRACT(DECADE FROM {time}) ; EXTRACT(CENTURY FROM {time})
        """,
    ),
    "double": (
        """
        d ; d ; 1.5e0 ; -0.1e0 ; CAST(n AS DOUBLE) ; CAST('NaN' AS DOUBLE)
        """,
        """
        ({double} + {int}) ; ({double} * {double}) ; {double} / {double} ; {int} / 2.0e0 ;
        ROUND({double}, {small}) ; FLOOR({double}) ; CEIL({double}) ; SQRT(ABS({double})) ;
        POWER({double}, 2) ; TRUNCATE({double}, 1) ; TRY_CAST({string} AS DOUBLE) ;
        CAST({decimal} AS DOUBLE) ; EXP({small}) ; ABS({double}) ; SIGN({double}) ; CAST({double} AS FLOAT) ;
        COALESCE({double}, {int}) ; LN(ABS({double}) + 1) ; {decimal} * {double} ;
        JSON_VALUE({json}, {path} RETURNING DOUBLE NULL ON EMPTY NULL ON ERROR) ; GREATEST({double}, {int})
        """,
    ),
    "decimal": (
        """
        x ; x ; 1.25 ; -7.005 ; CAST('99999999.99' AS DECIMAL(10, 2)) ; 0.1
        """,
        """
        ({decimal} + {decimal}) ; ({decimal} * {decimal}) ; ({decimal} - {int}) ; {decimal} / 3 ;
        ({decimal} / {decimal}) ; CAST({decimal} AS DECIMAL(6, 1)) ; CAST({double} AS DECIMAL(12, 3)) ;
        ROUND({decimal}, {small}) ; ABS({decimal}) ; FLOOR({decimal}) ; CEIL({decimal}) ;
        TRUNCATE({decimal}, 1) ; MOD({decimal}, 0.7) ; CAST({int} AS DECIMAL(3, 1)) ; COALESCE({decimal}, 1) ;
        -{decimal} ; SIGN({decimal}) ; CASE WHEN {bool} THEN {decimal} ELSE {int} END ;
        LEAST({decimal}, {decimal}) ; {bigint} * {decimal}
        """,
    ),
    "string": (
        """
        s ; s ; kind ; host ; 'abc' ; '' ; '2026-10-25 02:30:00'
        """,
        """
        UPPER({string}) ; LOWER({string}) ; SUBSTRING({string}, {small}) ;
        SUBSTRING({string}, {small}, {small}) ; CONCAT({string}, {string}) ; ({string} || {string}) ;
        TRIM({string}) ; REPLACE({string}, 'a', {text}) ; CAST({any} AS STRING) ; CAST({int} AS VARCHAR(2)) ;
        CAST({string} AS CHAR(4)) ; LPAD({string}, 5, '*') ; DATE_FORMAT({time}, 'yyyy-MM-dd HH:mm:ss.SSS') ;
        DATE_FORMAT({time}, 'E dd MMM yy, hh:mm a') ; REVERSE({string}) ;
        CONVERT_TZ({string}, {zone}, {zone}) ; CONVERT_TZ('2026-03-29 02:30:00', {zone}, {zone}) ;
        INITCAP({string}) ; REGEXP_EXTRACT({string}, '([a-z])(.)', 2) ;
        REGEXP_REPLACE({string}, '[aeiou]', '#') ; SPLIT_INDEX({string}, ',', {small}) ;
        JSON_VALUE({json}, {path}) ; JSON_VALUE({json}, {path} DEFAULT 'e' ON EMPTY DEFAULT 'f' ON ERROR) ;
        JSON_QUERY({json}, {path}) ; JSON_QUERY({json}, {path} WITH WRAPPER) ;
        JSON_QUERY({json}, {path} WITH CONDITIONAL ARRAY WRAPPER) ;
        JSON_QUERY({json}, {path} EMPTY ARRAY ON EMPTY EMPTY OBJECT ON ERROR) ; JSON_QUOTE({string}) ;
        JSON_STRING({any}) ; JSON_OBJECT('k' VALUE {int}, 'l' VALUE {string} ABSENT ON NULL) ;
        JSON_ARRAY({int}, {string} NULL ON NULL) ; CASE WHEN {bool} THEN {string} ELSE {string} END ;
        COALESCE({string}, {string}) ; CONCAT_WS('-', {string}, {string}) ; LEFT({string}, 2) ;
        RIGHT({string}, 2) ; REPEAT({string}, 2) ; TO_BASE64({string}) ; MD5({string}) ; HEX({int}) ;
        OVERLAY({string} PLACING 'XY' FROM 2 FOR 1) ; TRANSLATE({string}, 'abc', 'x') ;
        CAST({decimal} AS STRING) ; CAST({double} AS STRING) ; CAST({time} AS STRING) ;
        CAST({bool} AS STRING) ; FROM_UNIXTIME({int}) ; RTRIM({string}) ; URL_ENCODE({string}) ;
        JSON_UNQUOTE({json}) ; STR_TO_MAP({string}, '&', '=')['k'] ; CHR({int}) ; BTRIM({string}, 'a ')
        """,
    ),
    "json": (
        """
        j ; j ; j
        """,
        """
        j ; JSON_QUERY(j, '$.a') ; s ; JSON_OBJECT('a' VALUE n)
        """,
    ),
    "bool": (
        """
        o ; n > 1 ; kind = 'in' ; TRUE
        """,
        """
        ({int} > {int}) ; ({double} <= {int}) ; ({string} = {string}) ; ({bool} AND {bool}) ;
        ({bool} OR {bool}) ; NOT {bool} ; ({string} IS NULL) ; ({int} BETWEEN {int} AND {int}) ;
        ({int} IN (1, 2, {int})) ; ({bool} IS NOT TRUE) ; ({string} LIKE '%a_') ; ({string} NOT LIKE 'a%') ;
        ({string} SIMILAR TO '(a|b)%') ; REGEXP({string}, '^[a-z]+$') ; JSON_EXISTS({json}, {path}) ;
        ({json} IS JSON) ; ({json} IS JSON OBJECT) ; ({json} IS NOT JSON SCALAR) ;
        ({int} IS DISTINCT FROM {int}) ; ({time} < {time}) ; ({decimal} = {int}) ; ({string} > {string}) ;
        IS_DIGIT({string}) ; ({decimal} < {double}) ; ({bigint} <> {int}) ; TRY_CAST({string} AS BOOLEAN) ;
        STARTSWITH({string}, 'a') ; CAST({int} AS BOOLEAN) ; JSON_VALUE({json}, {path} RETURNING BOOLEAN) ;
        ({string} NOT IN ('a', 'b')) ; ({int} NOT IN (1, CAST(NULL AS INT)))
        """,
    ),
    "time": (
        """
        ts ; t ; TIMESTAMP '2024-02-29 12:00:00' ; TIMESTAMP '1969-12-31 23:59:59.5'
        """,
        """
        ({time} + INTERVAL '1' DAY) ; ({time} - INTERVAL '1' MONTH) ; TIMESTAMPADD({unit}, {small}, {time}) ;
        FLOOR({time} TO {unit}) ; CEIL({time} TO {unit}) ; TO_TIMESTAMP({stamp}) ;
        TRY_CAST({string} AS TIMESTAMP(3)) ; COALESCE({time}, {time}) ;
        CASE WHEN {bool} THEN {time} ELSE {time} END ; CAST({time} AS TIMESTAMP(0)) ;
        CAST(CAST({time} AS DATE) AS TIMESTAMP(3)) ; ({time} + INTERVAL '1-2' YEAR TO MONTH) ;
        ({time} - INTERVAL '1 02:03:04.5' DAY TO SECOND) ; TO_TIMESTAMP({string}, 'yyyy-MM-dd')
        """,
    ),
    "stamp": (
        """
        s ; '2026-03-29 02:30:00' ; '2026-01-01 00:00:00'
        """,
        """
        DATE_FORMAT({time}, 'yyyy-MM-dd HH:mm:ss') ; {string}
        """,
    ),
    "cast": (
        """
        TRY_CAST(s AS {type})
        """,
        """
        TRY_CAST({any} AS {type}) ; TRY_CAST({string} AS {type}) ; CAST({int} AS {type}) ;
        CAST({double} AS {type})
        """,
    ),
    "date": (
        """
        DATE '2024-02-29' ; CAST(ts AS DATE)
        """,
        """
        CAST({time} AS DATE) ; TRY_CAST({string} AS DATE) ; TO_DATE({string}) ;
        ({date} + INTERVAL '1' MONTH) ; FLOOR({date} TO {unit}) ; TIMESTAMPADD(DAY, {small}, {date}) ;
        CEIL({date} TO {unit})
        """,
    ),
    "list": (
        """
        ARRAY[1, n] ; SPLIT(s, ',') ; ARRAY[n, CAST(NULL AS INT), 3]
        """,
        """
        ARRAY_SORT(ARRAY[{int}, {int}]) ; ARRAY_DISTINCT(ARRAY[{string}, {string}]) ;
        ARRAY_APPEND({list}, NULL) ; ARRAY_REVERSE({list}) ; ARRAY_SLICE({list}, {small}, {small}) ;
        ARRAY_CONCAT(ARRAY[{int}], ARRAY[{int}]) ; ARRAY_REMOVE(ARRAY[{int}, {int}], 1) ;
        ARRAY_UNION(ARRAY[{int}, 1], ARRAY[2, {int}]) ; REGEXP_EXTRACT_ALL({string}, '([a-z])', 1) ;
        MAP[{string}, {int}] ; ROW({int}, {string}) ; ARRAY[{decimal}, {int}] ;
        ARRAY_EXCEPT(ARRAY[{int}], ARRAY[1])
        """,
    ),
}
"""Of each kind of value: what it is made of in the end, and forms, by semicolons; words in braces are kinds, or see
``_filled``."""
