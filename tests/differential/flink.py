"""What Apache Flink answers: runs the statements of vectors in a real Flink, and keeps or compares its rows.

    python -m venv flink && flink/bin/pip install apache-flink==2.3.0        # 850 MB; needs Java 17
    flink/bin/python tests/differential/flink.py write FILE.json…            # rows for statements that have none yet
    flink/bin/python tests/differential/flink.py write --again FILE.json…    # for all
    flink/bin/python tests/differential/flink.py check FILE.json…            # exit status 1 on any difference

It needs nothing of Vedette. A file of vectors (``tests/differential/sql/*.json``):

    {"tables": [{"name": "events", "columns": "ts TIMESTAMP(3), host STRING, n INT",
                 "watermark": "ts - INTERVAL '5' SECOND",            (of the first column; left out: none)
                 "events": [{"ts": "2026-01-01T00:00:00", "host": "a", "n": 1}, …]},
                {"name": "assets", "columns": "ip STRING, owner STRING", "keys": "ip",       (a lookup; its primary key)
                 "events": [{"ip": "10.0.0.1", "owner": "ann", "since": …, "until": …}, …]}, …],
     "before": ["CREATE VIEW …", …],                                 (left out: none)
     "modules": "functions",                                         (a folder beside the file, of functions in Python)
     "statements": [{"sql": "SELECT …",
                     "columns": [["name", "type as Flink has it"], …],
                     "rows": [[value, …], …]}, …],                   (in Flink's order)
     "expressions": [{"sql": "UPPER(host)", "type": "STRING", "values": [value of each event of the first table]}, …]}

Instead of rows, a statement (or an expression) has ``refused`` (Flink does not plan it; the text is its reason) or
``dies`` (its job fails while it runs), and ``updates: true`` when its result is more than appended rows (then each row
begins with its kind). ``note`` and other keys of the author stay. Values: texts, numbers, true, false, null as in JSON
(with ``NaN``, ``Infinity``); DECIMAL as text; DATE, TIME and TIMESTAMP as ISO text, UTC; bytes as hex text; intervals
as microseconds or months; ARRAY, MAP (of pairs), ROW as lists.

Tables are bounded streams of their events in the order given, parallelism 1, the watermark after each event. A lookup
is a versioned table: a row begins at ``since`` (left out: 1970) and ends before ``until`` (left out, null: never).
"""

from __future__ import annotations

import argparse
import decimal
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

CONFIGURATION = {
    "parallelism.default": "1",
    "table.local-time-zone": "UTC",
    "table.exec.source.idle-timeout": "0",
    "pipeline.auto-watermark-interval": "0 ms",
    "table.exec.resource.default-parallelism": "1",
    "python.fn-execution.bundle.size": "1",  # else functions in Python see a watermark after 1,000 rows or a second
    "python.executable": sys.executable,
    "python.client.executable": sys.executable,
}


VERSION = "version_time"
"""Of a versioned table the column of the time from which a row holds."""


def plain(value: Any) -> Any:
    """``value``, of Java's classes for a field of a row, as JSON has it in vectors."""
    match value:
        case bool() | int() | float() | str() | None:
            return value
        case decimal.Decimal():
            return format(value, "f")
        case bytes() | bytearray():
            return bytes(value).hex()
    kind = type(value).__name__
    name = value.getClass().getSimpleName() if kind == "JavaObject" else kind
    match name:
        case "LocalDateTime" | "Instant":
            return time_text(value.toString().removesuffix("Z"))
        case "LocalTime":
            return time_text(value.toString())
        case "Duration":
            return value.toNanos() // 1000
        case "Period":
            return value.toTotalMonths()
        case "Row":
            return [plain(value.getField(index)) for index in range(value.getArity())]
        case "JavaMap":
            return sorted(([plain(key), plain(one)] for key, one in value.items()), key=repr)
        case "JavaArray":
            return [plain(one) for one in value]
    return value.toString()


def changes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a lookup as Debezium's changes of a table, by time."""
    timed = []
    for row in rows:
        values = {key: value for key, value in row.items() if key not in ("since", "until")}
        since, until = row.get("since") or "1970-01-01T00:00:00", row.get("until")
        timed.append((since, 1, {"before": None, "after": {**values, VERSION: since}, "op": "c"}))
        if until is not None:
            timed.append((until, 0, {"before": {**values, VERSION: until}, "after": None, "op": "d"}))
    return [change for _, _, change in sorted(timed, key=lambda one: one[:2])]


def time_text(text: str) -> str:
    """Java leaves out seconds that are zero, and writes fractions by three digits: always seconds, no idle zeros."""
    whole, _, fraction = text.partition(".")
    if whole.count(":") == 1:
        whole += ":00"
    return f"{whole}.{fraction}".rstrip("0").rstrip(".") if fraction.strip("0") else whole


def reason(error: BaseException) -> str:
    """The innermost cause of an error of Flink's, one line."""
    text = str(error)
    if "Python Proxy" in text:  # a module does not import: nothing that Flink says of the statement
        raise error
    if "SDK harness" in text and (raised := re.findall(r"^(\w+(?:Error|Exception)\b.*)", text, re.MULTILINE)):
        return raised[-1][:300]  # by a function, or by what reads its value
    causes = re.findall(r"^(?:Caused by)?: (.*)", text, re.MULTILINE) or [text or repr(error)]
    return re.sub(r"^([\w$]+\.)+", "", causes[-1].strip())[:300]


class Flink:
    """One Flink, all of whose tables go under the names that the vectors give."""

    def __init__(self, folder: Path) -> None:
        from pyflink.table import EnvironmentSettings, TableEnvironment

        self._folder = folder
        self._env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        for key, value in CONFIGURATION.items():
            self._env.get_config().set(key, value)
        self._modules: set[Path] = set()

    def begin(self, number: int, vectors: dict[str, Any], beside: Path) -> None:
        """Make the tables, views and functions of a file in the folder ``beside``; those of the last file are gone."""
        if "modules" in vectors and (modules := (beside / vectors["modules"]).resolve()) not in self._modules:
            self._modules.add(modules)
            sys.path.append(str(modules))
            self._env.add_python_file(str(modules))
        self._env.execute_sql(f"CREATE DATABASE file{number}")
        self._env.use_database(f"file{number}")
        for table in vectors["tables"]:
            path = self._folder / f"{number}-{table['name']}.json"
            columns, events, of = table["columns"], table["events"], "json"
            if "keys" in table:
                columns += f", {VERSION} TIMESTAMP(3), WATERMARK FOR {VERSION} AS {VERSION} - INTERVAL '0.001' SECOND"
                columns += f", PRIMARY KEY ({', '.join(f'`{one}`' for one in table['keys'].split())}) NOT ENFORCED"
                events, of = changes(events), "debezium-json"
            elif table.get("watermark"):
                columns += f", WATERMARK FOR {columns.split()[0]} AS {table['watermark']}"
            path.write_text("".join(json.dumps(one) + "\n" for one in events), "utf-8")
            self._env.execute_sql(
                f"CREATE TABLE {table['name']} ({columns}) WITH ('connector'='filesystem',"
                f" 'path'='{path.as_uri()}', 'format'='{of}', '{of}.timestamp-format.standard'='ISO-8601')"
            )
        for statement in vectors.get("before", ()):
            self._env.execute_sql(statement)

    def answer(self, sql: str) -> dict[str, Any]:
        """``columns`` and ``rows``, or ``refused``, or ``dies``."""
        try:
            result = self._env.execute_sql(sql)
        except Exception as error:  # of many classes, Java's among them
            return {"refused": reason(error)}
        schema = result._j_table_result.getResolvedSchema()
        columns = [[one.getName(), str(one.getDataType())] for one in schema.getColumns()]
        rows, kinds = [], []
        try:
            result_rows = result._j_table_result.collect()
            while result_rows.hasNext():
                row = result_rows.next()
                kinds.append(row.getKind().shortString())
                rows.append(plain(row))
            result_rows.close()
        except Exception as error:  # likewise
            return {"columns": columns, "dies": reason(error)}
        if any(kind.startswith("-") for kind in kinds):  # functions in Python append some as +U
            rows = [[kind, *row] for kind, row in zip(kinds, rows, strict=True)]
            return {"columns": columns, "updates": True, "rows": rows}
        return {"columns": columns, "rows": rows}

    def evaluate(self, table: str, expressions: list[str]) -> list[dict[str, Any]]:
        """Of each expression ``type`` and ``values``, or ``refused``, or ``dies``; in few jobs, as each takes time."""
        outcomes: list[dict[str, Any]] = []
        for sql in expressions:
            try:
                schema = self._env.sql_query(f"SELECT {sql} AS e FROM {table}")._j_table.getResolvedSchema()
                outcomes.append({"type": str(schema.getColumns()[0].getDataType())})
            except Exception as error:  # of many classes, Java's among them
                outcomes.append({"refused": reason(error)})
        planned = [index for index, one in enumerate(outcomes) if "type" in one]
        runs = [planned[start : start + 40] for start in range(0, len(planned), 40)]
        while runs:
            run = runs.pop()
            names = ", ".join(f"{expressions[index]} AS e{index}" for index in run)
            answer = self.answer(f"SELECT {names} FROM {table}")
            if "rows" in answer:
                for place, index in enumerate(run):
                    outcomes[index]["values"] = [row[place] for row in answer["rows"]]
            elif len(run) > 1:  # one of them fails: halves, until it is known which
                runs += [run[: len(run) // 2], run[len(run) // 2 :]]
            else:
                outcomes[run[0]] |= {key: answer[key] for key in ("refused", "dies") if key in answer}
        return outcomes


def remaining(changes: list[list[Any]]) -> list[list[Any]]:
    """The rows that are left of what was given and taken back."""
    left: list[list[Any]] = []
    for kind, *row in changes:
        if kind.startswith("+"):
            left.append(row)
        else:
            left.remove(row)
    return left


def comparable(answer: dict[str, Any], *, final: bool = False) -> str:
    """An answer without the reasons, whose words are Java's and may hold addresses, and without the order of rows,
    which follows from how far Flink has read each of two tables; where only the ``final`` rows count, which are taken
    back meanwhile does so, too. As text: NaN equals NaN."""
    parts = {key: key in ("refused", "dies") or value for key, value in answer.items()}
    if final and parts.pop("updates", False):
        parts["rows"] = remaining(parts["rows"])
    if "rows" in answer:
        parts["rows"] = sorted(map(json.dumps, answer["rows"]))
    return json.dumps(parts, sort_keys=True)


ANSWERS = ("columns", "rows", "refused", "dies", "updates", "type", "values")


def written(vectors: dict[str, Any]) -> str:
    """The text of a file of vectors: a line for each event and each statement."""

    def lines(values: list[Any], indent: str) -> str:
        return ",\n".join(f"{indent}{json.dumps(one, ensure_ascii=False)}" for one in values)

    tables = []
    for table in vectors["tables"]:
        head = {key: value for key, value in table.items() if key != "events"}
        tables.append(f'{json.dumps(head, ensure_ascii=False)[:-1]}, "events": [\n{lines(table["events"], "  ")}\n]}}')
    rest = {key: value for key, value in vectors.items() if key not in ("tables", "statements", "expressions")}
    parts = ['"tables": [\n' + ",\n".join(tables) + "\n]"]
    parts += [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in rest.items()]
    for key in ("statements", "expressions"):
        if key in vectors:
            parts.append(f'"{key}": [\n' + lines(vectors[key], "") + "\n]")
    return "{" + ",\n".join(parts) + "}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("write", "check"))
    parser.add_argument("--again", action="store_true", help="write: run statements that have rows as well")
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        flink = Flink(Path(folder))
        for number, file in enumerate(options.files):
            vectors = json.loads(file.read_text("utf-8"))
            flink.begin(number, vectors, file.parent)
            wanted = [
                statement
                for statement in (*vectors.get("statements", ()), *vectors.get("expressions", ()))
                if options.verb == "check" or options.again or not any(key in statement for key in ANSWERS)
            ]
            expressions = [one for one in wanted if any(one is other for other in vectors.get("expressions", ()))]
            evaluated = flink.evaluate(vectors["tables"][0]["name"], [one["sql"] for one in expressions])
            answers = {id(one): answer for one, answer in zip(expressions, evaluated, strict=True)}
            for statement in wanted:
                stored = {key: statement[key] for key in ANSWERS if key in statement}
                final = statement.get("ours") == "final"
                answer = json.loads(json.dumps(answers.get(id(statement)) or flink.answer(statement["sql"])))
                if options.verb == "write":
                    for key in ANSWERS:
                        statement.pop(key, None)
                    statement.update(answer)
                    if not stored or json.dumps(stored) != json.dumps(answer):
                        shown = next(
                            f"{key}: {answer[key]}" for key in ("refused", "dies", "rows", "values") if key in answer
                        )
                        print(f"{file.name}: {statement['sql']:.100}: {shown:.200}", flush=True)
                        file.write_text(written(vectors), "utf-8")
                elif comparable(stored, final=final) != comparable(answer, final=final):
                    different += 1
                    print(f"{file.name}: {statement['sql']}\n  kept:  {stored}\n  Flink: {answer}", flush=True)
            if options.verb == "write":
                file.write_text(written(vectors), "utf-8")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
