# ruff: noqa: E501 - SQL and plans as they are
"""Queries to nodes: each form of SQL, and what it comes to (``plans.py`` says how that is written)."""

from __future__ import annotations

from tests.differences import walk
from tests.rules.sql.plans import names, plan, read

CASES: dict[str, tuple[str, str]] = {
    "fields and metadata": (
        """
SELECT `user`, `winlog.event_id`, process.name AS name, host FROM events WHERE action = 'login'
""",
        """
Calc($4, $5, $3, $1 | =($2, 'login'))
  Scan(events: host@, action, process.name, user, winlog.event_id)
""",
    ),
    "a filter on time needs no watermark": (
        """
SELECT `user` FROM events WHERE event_time > received_at
""",
        """
Calc($3 | >($1, $2))
  Scan(events: event_time@, received_at@, user)
""",
    ),
    "a statement over TUMBLE": (
        """
SELECT window_start, host, COUNT(*) AS n, COUNT(DISTINCT `user`) AS users
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '10' MINUTES))
WHERE action = 'fail' GROUP BY window_start, window_end, host HAVING COUNT(*) > 5
""",
        """
Calc($4, $1, $2, $3 | >($2, 5))
  Windowed(keys=2, [COUNT(), COUNT(DISTINCT $3)], TUMBLE 600s)
    Calc($1, $2, $4 | =($3, 'fail'))
      Scan(events: event_time@, host@, action, user; mark -($1, 30000000))
""",
    ),
    "CUMULATE and FILTER": (
        """
SELECT window_end, MAX(x) FILTER (WHERE y = 'q') AS m
FROM TABLE(CUMULATE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE, INTERVAL '1' HOUR))
GROUP BY window_start, window_end
""",
        """
Calc($3, $1)
  Windowed(keys=none, [MAX($2) | $3], CUMULATE 3600s step 60s)
    Calc($1, $2, =($3, 'q'))
      Scan(events: event_time@, x, y; mark -($1, 30000000))
""",
    ),
    "HOP by itself, arguments by name": (
        """
SELECT x, window_time FROM HOP(
  DATA => TABLE events, TIMECOL => DESCRIPTOR(event_time), SLIDE => INTERVAL '1' MINUTE, SIZE => INTERVAL '5' MINUTE
) WHERE y = 'q'
""",
        """
Calc($2, $5)
  Assign(keys=none, HOP 300s step 60s)
    Calc($1, $2 | =($3, 'q'))
      Scan(events: event_time@, x, y; mark -($1, 30000000))
""",
    ),
    "an offset": (
        """
SELECT window_start, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' DAY, INTERVAL '-6' HOUR))
GROUP BY window_start, window_end
""",
        """
Calc($2, $1)
  Windowed(keys=none, [COUNT()], TUMBLE 86400s offset -21600s)
    Calc($1)
      Scan(events: event_time@; mark -($1, 30000000))
""",
    ),
    "SESSION by the keys of the groups": (
        """
SELECT window_start, `user`, COUNT(*) AS n
FROM TABLE(SESSION(TABLE events PARTITION BY `user`, DESCRIPTOR(event_time), INTERVAL '5' MINUTE))
GROUP BY `user`, window_start, window_end
""",
        """
Calc($3, $1, $2)
  Windowed(keys=2, [COUNT()], SESSION 300s)
    Calc($1, $2)
      Scan(events: event_time@, user; mark -($1, 30000000))
""",
    ),
    "SESSION with a filter, which comes first": (
        """
SELECT window_start, COUNT(*) AS n
FROM TABLE(SESSION(TABLE events PARTITION BY host, DESCRIPTOR(event_time), INTERVAL '5' MINUTE))
WHERE y = 'q' GROUP BY window_start, window_end, host
""",
        """
Calc($3, $2)
  Windowed(keys=2, [COUNT()], SESSION 300s)
    Calc($1, $2 | =($3, 'q'))
      Scan(events: event_time@, host@, y; mark -($1, 30000000))
""",
    ),
    "a filter before the sessions": (
        """
SELECT window_start, COUNT(*) AS n
FROM TABLE(SESSION(TABLE (SELECT host, event_time FROM events WHERE y = 'q') PARTITION BY host, DESCRIPTOR(event_time), INTERVAL '5' MINUTE))
GROUP BY window_start, window_end, host
""",
        """
Calc($3, $2)
  Windowed(keys=2, [COUNT()], SESSION 300s)
    Calc($1, $2 | =($3, 'q'))
      Scan(events: event_time@, host@, y; mark -($1, 30000000))
""",
    ),
    "group windows": (
        """
SELECT SESSION_START(event_time, INTERVAL '5' MINUTE) AS s, `user`, LISTAGG(host) AS h, PERCENTILE(CAST(x AS DOUBLE), 0.9) AS p
FROM events GROUP BY `user`, SESSION(event_time, INTERVAL '5' MINUTE)
""",
        """
Calc($4, $1, $2, $3)
  Windowed(keys=3, [LISTAGG($2), PERCENTILE($4, 0.9)], SESSION 300s, legacy)
    Calc($1, $2, $3, CAST($4, DOUBLE))
      Scan(events: event_time@, host@, user, x; mark -($1, 30000000))
""",
    ),
    "GROUPING SETS": (
        """
SELECT window_start, GROUPING_ID(host, `user`) AS g, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE))
GROUP BY GROUPING SETS ((window_start, window_end, host), (window_start, window_end, `user`))
""",
        """
Calc($4, +(*(%(/($7, 2), 2), 2), %($7, 2)), $3)
  Windowed(keys=2+3, [COUNT()], TUMBLE 60s, sets=[[0], [1]])
    Calc($1, $2, $3)
      Scan(events: event_time@, host@, user; mark -($1, 30000000))
""",
    ),
    "ROLLUP": (
        """
SELECT window_start, host, `user`, GROUPING(host) AS g, COUNT(*) AS n
FROM TABLE(HOP(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE))
GROUP BY window_start, window_end, ROLLUP (host, `user`)
""",
        """
Calc($4, $1, $2, %(/($7, 2), 2), $3)
  Windowed(keys=2+3, [COUNT()], HOP 300s step 60s, sets=[[0, 1], [0], []])
    Calc($1, $2, $3)
      Scan(events: event_time@, host@, user; mark -($1, 30000000))
""",
    ),
    "CUBE": (
        """
SELECT window_start, host, `user`, COUNT(*) AS n
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, CUBE (host, `user`)
""",
        """
Calc($4, $1, $2, $3)
  Windowed(keys=2+3, [COUNT()], TUMBLE 60s, sets=[[0, 1], [1], [0], []])
    Calc($1, $2, $3)
      Scan(events: event_time@, host@, user; mark -($1, 30000000))
""",
    ),
    "a window of windows' rows": (
        """
SELECT window_start, window_end, MAX(n) AS m FROM (
  SELECT window_start, window_end, `user`, COUNT(*) AS n
  FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, `user`
) GROUP BY window_start, window_end
""",
        """
Calc($1, $2, $3)
  Grouped(keys=2+3, [MAX($1)], window=2+3)
    Calc($2, $3, $4)
      Windowed(keys=2, [COUNT()], TUMBLE 60s)
        Calc($1, $2)
          Scan(events: event_time@, user; mark -($1, 30000000))
""",
    ),
    "windows over window_time": (
        """
SELECT window_start AS ws, MAX(n) AS m FROM TABLE(TUMBLE(TABLE (
  SELECT `user`, window_time AS rt, COUNT(*) AS n
  FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE))
  GROUP BY window_start, window_end, window_time, `user`
), DESCRIPTOR(rt), INTERVAL '1' HOUR)) GROUP BY window_start, window_end
""",
        """
Calc($2, $1)
  Windowed(keys=none, [MAX($1)], TUMBLE 3600s)
    Calc($2, $5)
      Windowed(keys=2, [COUNT()], TUMBLE 60s)
        Calc($1, $2)
          Scan(events: event_time@, user; mark -($1, 30000000))
""",
    ),
    "SELECT DISTINCT of a window": (
        """
SELECT DISTINCT window_start, window_end, `user`
FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE))
""",
        """
Calc($2, $3, $1)
  Windowed(keys=2, [], TUMBLE 60s)
    Calc($1, $2)
      Scan(events: event_time@, user; mark -($1, 30000000))
""",
    ),
    "OVER with a named window": (
        """
SELECT host, COUNT(*) OVER w AS c, SUM(CAST(`bytes` AS INT)) OVER w AS s FROM events
WINDOW w AS (PARTITION BY host ORDER BY event_time RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND CURRENT ROW)
""",
        """
Calc($2, $5, $4)
  Over(keys=2, [SUM($3), COUNT()], range 3600000000)
    Calc($1, $2, CAST($3, INT))
      Scan(events: event_time@, host@, bytes; mark -($1, 30000000))
""",
    ),
    "OVER by rows, and over all": (
        """
SELECT host, COUNT(*) OVER (PARTITION BY host ORDER BY event_time ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS c,
  MAX(x) OVER (PARTITION BY host ORDER BY event_time) AS m,
  MIN(x) OVER (PARTITION BY host ORDER BY event_time ROWS UNBOUNDED PRECEDING) AS l FROM events
""",
        """
Calc($2, $4, $5, $6)
  Over(keys=2, [MIN($3)], rows all)
    Calc($1, $2, $3, $4, $5)
      Over(keys=2, [MAX($3)], all)
        Calc($1, $2, $3, $4)
          Over(keys=2, [COUNT()], rows 9)
            Calc($1, $2, $3)
              Scan(events: event_time@, host@, x; mark -($1, 30000000))
""",
    ),
    "Top-N of a window": (
        """
SELECT host, c, rn FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY c DESC) AS rn FROM (
    SELECT window_start, window_end, host, COUNT(*) AS c
    FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, host)
) WHERE rn <= 3
""",
        """
Calc($1, $2, $5, $4)
  Top(keys=3+4, order=2 desc nulls last, 1 to 3, window=3+4, ranked)
    Calc($1, $2, $3, $4)
      Windowed(keys=2, [COUNT()], TUMBLE 60s)
        Calc($1, $2)
          Scan(events: event_time@, host@; mark -($1, 30000000))
""",
    ),
    "the first of a key": (
        """
SELECT `user`, src_ip FROM (
  SELECT *, ROW_NUMBER() OVER (PARTITION BY `user` ORDER BY event_time) AS n FROM events WHERE action = 'login'
) WHERE n = 1 AND src_ip <> '10.0.0.1'
""",
        """
Calc($3, $2 | <>($2, '10.0.0.1'))
  Top(keys=3, order=1, 1 to 1)
    Calc($1, $3, $4 | =($2, 'login'))
      Scan(events: event_time@, action, src_ip, user; mark -($1, 30000000))
""",
    ),
    "an interval join": (
        """
SELECT l.`user` AS u, r.ts2 AS t FROM (SELECT `user`, event_time FROM events WHERE action = 'login') AS l
JOIN (SELECT `user`, event_time AS ts2 FROM events WHERE action = 'logout') AS r
ON l.`user` = r.`user` AND r.ts2 BETWEEN l.event_time AND l.event_time + INTERVAL '8' HOUR
""",
        """
Calc($2, $3)
  Join(INNER, 2 = 2, 0s to 28800s)
    Calc($1, $3 | =($2, 'login'))
      Scan(events: event_time@, action, user; mark -($1, 30000000))
    Calc($1, $3 | =($2, 'logout'))
      Scan(events: event_time@, action, user; mark -($1, 30000000))
""",
    ),
    "a partner that is missing": (
        """
SELECT l.`user` AS u FROM events AS l LEFT JOIN events AS r
ON l.`user` = r.`user` AND r.action = 'logout' AND r.event_time > l.event_time AND r.event_time < l.event_time + INTERVAL '8' HOUR
WHERE l.action = 'login' AND r.`user` IS NULL
""",
        """
Calc($2 | IS NULL($4))
  Join(LEFT, 2 = 2, 0.001s to 28800s)
    Calc($1, $3 | =($2, 'login'))
      Scan(events: event_time@, action, user; mark -($1, 30000000))
    Calc($1, $3 | =($2, 'logout'))
      Scan(events: event_time@, action, user; mark -($1, 30000000))
""",
    ),
    "an interval join by WHERE": (
        """
SELECT a.`user` AS u FROM events a, events b WHERE a.`user` = b.`user` AND a.action = 'x' AND b.action = 'y'
AND a.event_time BETWEEN b.event_time - INTERVAL '1' HOUR AND b.event_time AND a.n > b.n
""",
        """
Calc($3)
  Join(INNER, 3 = 3, 0s to 3600s | >($2, $5))
    Calc($1, $3, $4 | =($2, 'x'))
      Scan(events: event_time@, action, n, user; mark -($1, 30000000))
    Calc($1, $3, $4 | =($2, 'y'))
      Scan(events: event_time@, action, n, user; mark -($1, 30000000))
""",
    ),
    "a window join": (
        """
WITH w AS (
  SELECT window_start, window_end, `user`, COUNT(*) AS c
  FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end, `user`
) SELECT l.`user` AS u, l.c AS a, r.c AS b FROM w AS l FULL JOIN w AS r
ON l.`user` = r.`user` AND l.window_start = r.window_start AND l.window_end = r.window_end
""",
        """
Calc($1, $2, $6, $4, $8)
  Join(FULL, 1 = 1, windows ((3, 4), (3, 4)))
    Calc($1, $2, $3, $4)
      Windowed(keys=2, [COUNT()], TUMBLE 60s)
        Calc($1, $2)
          Scan(events: event_time@, user; mark -($1, 30000000))
    Calc($1, $2, $3, $4)
      Windowed(keys=2, [COUNT()], TUMBLE 60s)
        Calc($1, $2)
          Scan(events: event_time@, user; mark -($1, 30000000))
""",
    ),
    "NOT IN over a window": (
        """
WITH w AS (SELECT * FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE)))
SELECT l.`user` AS u FROM w AS l WHERE l.action = 'z' AND l.`user` NOT IN (
  SELECT r.`user` FROM w AS r WHERE r.action = 'y' AND l.window_start = r.window_start AND l.window_end = r.window_end)
""",
        """
Calc($1, $3)
  Join(ANTI, none = none, windows ((2, 3), (2, 3)) | OR(=($1, $5), IS NULL($1), IS NULL($5)))
    Calc($2, $3, $4, $5)
      Assign(keys=none, TUMBLE 60s)
        Calc($1, $3 | =($2, 'z'))
          Scan(events: event_time@, action, user; mark -($1, 30000000))
    Calc($2, $3, $4, $5)
      Assign(keys=none, TUMBLE 60s)
        Calc($1, $3 | =($2, 'y'))
          Scan(events: event_time@, action, user; mark -($1, 30000000))
""",
    ),
    "EXISTS over a window": (
        """
WITH w AS (SELECT * FROM TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE)))
SELECT l.`user` AS u FROM w AS l WHERE EXISTS (
  SELECT * FROM w AS r WHERE l.`user` = r.`user` AND r.action = 'y' AND l.window_start = r.window_start AND l.window_end = r.window_end)
""",
        """
Calc($1, $3)
  Join(SEMI, 1 = 1, windows ((2, 3), (2, 3)))
    Calc($2, $3, $4, $5)
      Assign(keys=none, TUMBLE 60s)
        Calc($1, $2)
          Scan(events: event_time@, user; mark -($1, 30000000))
    Calc($2, $3, $4, $5)
      Assign(keys=none, TUMBLE 60s)
        Calc($1, $3 | =($2, 'y'))
          Scan(events: event_time@, action, user; mark -($1, 30000000))
""",
    ),
    "a lookup joined": (
        """
CREATE TABLE assets (ip STRING, owner STRING, crit INT) WITH ('connector' = 'vedette', 'lookup' = 'assets');
SELECT e.src_ip AS ip, d.owner AS o FROM events AS e LEFT JOIN assets FOR SYSTEM_TIME AS OF e.event_time AS d
ON d.ip = e.src_ip AND d.crit > 3 WHERE e.action = 'x'
""",
        """
Calc($2, $3)
  LookupJoin(LEFT assets by ip = $2: owner, crit; at 1 | >($4, 3))
    Calc($1, $3 | =($2, 'x'))
      Scan(events: event_time@, action, src_ip)
""",
    ),
    "IN a lookup": (
        """
CREATE TABLE assets (ip STRING, owner STRING) WITH ('connector' = 'vedette', 'lookup' = 'assets');
SELECT src_ip FROM events WHERE src_ip IN (SELECT ip FROM assets) AND action = 'x'
""",
        """
Calc($2)
  LookupJoin(SEMI assets by ip = $2: ; at 1)
    Calc($1, $3 | =($2, 'x'))
      Scan(events: event_time@, action, src_ip)
""",
    ),
    "NOT IN a lookup": (
        """
CREATE TABLE assets (ip STRING, owner STRING) WITH ('connector' = 'vedette', 'lookup' = 'assets');
SELECT src_ip FROM events WHERE src_ip NOT IN (SELECT ip FROM assets WHERE owner = 'x')
""",
        """
Calc($2)
  LookupJoin(ANTI assets by ip = $2: owner; at 1 | =($3, 'x'))
    Calc($1, $2 | IS NOT NULL($2))
      Scan(events: event_time@, src_ip)
""",
    ),
    "NOT EXISTS in a lookup by range": (
        """
CREATE TABLE ranges (low INT, high INT) WITH ('connector' = 'vedette', 'lookup' = 'r');
CREATE TABLE t (n INT) WITH ('connector' = 'vedette');
SELECT n FROM t WHERE NOT EXISTS (SELECT * FROM ranges AS r WHERE t.n BETWEEN r.low AND r.high)
""",
        """
Calc($1)
  LookupJoin(ANTI r by low..high = $1: ; at 0)
    Calc($1)
      Scan(t: n)
""",
    ),
    "a pattern": (
        """
SELECT m.`user`, m.fx FROM events MATCH_RECOGNIZE (
  PARTITION BY `user` ORDER BY event_time
  MEASURES FIRST(A.x) AS fx, LAST(B.x, 1) AS lx, COUNT(A.x) AS n, MATCH_ROWTIME() AS ts
  ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
  PATTERN (A+? B{2,3} C) WITHIN INTERVAL '1' HOUR
  DEFINE A AS A.x = '1', B AS B.x < LAST(A.x), C AS COUNT(B.x) > 2) AS m
""",
        """
Calc($1, $2)
  Match(keys=2, A{1,}? B{2,3} C{1,1}, PAST, within 3600s, [A AS =($3, '1'); B AS <($3, PATTERN.LAST($3, A, 0)); C AS >(PATTERN.AGGREGATE($3, B, COUNT), 2)], [PATTERN.FIRST($3, A, 0), PATTERN.LAST($3, B, 1), PATTERN.AGGREGATE($3, A, COUNT), PATTERN.ROWTIME()])
    Calc($1, $2, $3)
      Scan(events: event_time@, user, x; mark -($1, 30000000))
""",
    ),
    "UNION ALL with a condition on all of it": (
        """
CREATE VIEW v AS SELECT `user` AS u, event_time FROM events WHERE a = 'x';
INSERT INTO s SELECT u FROM v;
INSERT INTO s SELECT host FROM events WHERE c = 'd';
SELECT u FROM s WHERE u <> 'root'
""",
        """
Calc($1)
  Union()
    Calc($2 | AND(=($1, 'x'), <>($2, 'root')))
      Scan(events: a, user)
    Calc($1 | AND(=($2, 'd'), <>($1, 'root')))
      Scan(events: host@, c)
""",
    ),
    "UNNEST": (
        """
CREATE TABLE t (u STRING, tags ARRAY<STRING>) WITH ('connector' = 'vedette');
SELECT u, x FROM t CROSS JOIN UNNEST(tags) AS v(x) WHERE u = 'q'
""",
        """
Calc($2, $3)
  Expand(UNNEST($1), False)
    Calc($1, $2 | =($2, 'q'))
      Scan(t: tags, u)
""",
    ),
    "computed columns and a watermark": (
        """
CREATE TABLE t (temp DOUBLE, f AS temp * 2 + 32, ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH ('connector' = 'vedette', 'input' = 'plant, web');
SELECT TUMBLE_ROWTIME(ts, INTERVAL '1' MINUTE) AS rt, AVG(f) AS m FROM t GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)
""",
        """
Calc($4, $1)
  Windowed(keys=none, [AVG($2)], TUMBLE 60s, legacy)
    Calc($1, +(*($2, 2), 32))
      Scan(t: event_time@, temp; mark -($1, 5000000); of plant, web)
""",
    ),
    "a statement set and names of columns": (
        """
EXECUTE STATEMENT SET BEGIN INSERT INTO alerts (a, b) SELECT `user`, host FROM events WHERE x = 'y'; END
""",
        """
Calc($2, $1 | =($3, 'y'))
  Scan(events: host@, user, x)
""",
    ),
}  # fmt: skip


@walk("name", CASES)
def test_lowered(name: str) -> None:
    """Each form of SQL comes to these nodes: merged, pruned, in one order."""
    sql, expected = CASES[name]
    assert plan(sql) == expected.strip()


def test_the_columns_of_an_alert() -> None:
    """The root has the columns of the SELECT, or the names that INSERT INTO gives them."""
    sql = "SELECT `user` AS u, event_time AS t, 1 + 1 AS n FROM events"
    assert names(sql) == ["u STRING", "t TIMESTAMP_LTZ(3)", "n INT"]
    assert names("INSERT INTO alerts (a, b) SELECT `user`, host FROM events") == ["a STRING", "b STRING"]


def test_a_number_of_many_digits() -> None:
    """Up to 38 are a DECIMAL, none of them lost."""
    text = "1234567890123456789012345678901234567.8"
    assert names(f"SELECT {text} AS d FROM events") == ["d DECIMAL(38, 1)"]
    assert text in plan(f"SELECT `user` || CAST({text} AS STRING) AS d FROM events")


def test_what_means_the_same_is_the_same() -> None:
    """Aliases, order, views, subqueries and letters of functions make no difference below the root."""
    window = "TABLE(TUMBLE(TABLE events, DESCRIPTOR(event_time), INTERVAL '1' MINUTE))"
    same = [
        f"SELECT host, `user` AS u, COUNT(*) AS n, MAX(x) AS m FROM {window} WHERE a = '1' GROUP BY window_start,"
        " window_end, `user`, host",
        f"SELECT e.`user` AS b, MAX(e.x) AS m, count(*) AS n FROM {window} AS e WHERE e.a = '1' GROUP BY host,"
        " window_end, `user`, window_start HAVING COUNT(*) > 3",
        "WITH w AS (SELECT x AS z, event_time AS t, `user` AS k, host AS h FROM events WHERE a = '1')"
        " SELECT h, k, MAX(z) AS m, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE w, DESCRIPTOR(t), INTERVAL '60' SECOND))"
        " GROUP BY window_start, window_end, k, h",
    ]
    assert len({read(sql).statements[0].root.inputs[0].fingerprint for sql in same}) == 1


def test_equal_scans_have_one_rule() -> None:
    """Statements that select the same events share the rule that does; one that is refused leaves none behind."""
    rules = read("SELECT `user` FROM events WHERE a = '1'; SELECT host AS h FROM events WHERE '1' = a; SELECT x FROM b")
    assert [rule.id for rule in rules.rules] == [one.scans[0].rule for one in rules.statements[:1]]
    assert len({one.scans[0].rule for one in rules.statements}) == 1
    assert len(rules.refused) == 1
