-- Thin, reshape and route telemetry at the edge: rows for two sinks of the site, and an alert, of one table.
--
-- The agent needs, in vedette.toml, a [[sink]] name = "lake" and one name = "control", each with takes = "rows"
-- (docs/guide.md, "Rows of statements"). Try it before: vedette scan --rules route.sql --format json events.json

CREATE TABLE devices (
  device STRING,
  temp DOUBLE,
  state STRING,
  ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND
) WITH ('connector' = 'vedette', 'category' = 'iot');

CREATE TABLE lake (sensor STRING, since TIMESTAMP(3), mean DOUBLE, most DOUBLE, readings BIGINT)
WITH ('connector' = 'sink', 'name' = 'lake');

CREATE TABLE control (sensor STRING, seen TIMESTAMP_LTZ(3), what STRING)
WITH ('connector' = 'sink', 'name' = 'control');

-- title: Readings by the minute
INSERT INTO lake
SELECT device, window_start, AVG(temp), MAX(temp), COUNT(*)
FROM TABLE(TUMBLE(TABLE devices, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
GROUP BY window_start, window_end, device;

-- title: Faults to the control room
INSERT INTO control SELECT device, ts, 'fault' FROM devices WHERE state = 'fault';

-- title: Hot to the control room
INSERT INTO control SELECT device, ts, 'hot' FROM devices WHERE temp > 90;

-- title: A device on fire
-- level: critical
INSERT INTO alerts SELECT device, temp FROM devices WHERE temp > 200;
