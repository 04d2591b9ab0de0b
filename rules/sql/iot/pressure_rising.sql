-- title: Pressure Rising without a Break
-- id: 56b4d447-4eae-5f24-912b-39164419c77e
-- level: high
-- tags: attack.impair-process-control, attack.t0806
-- description: Six readings of a device in a row were each higher than the one before, within ten minutes, and together by more than a half.

CREATE TABLE telemetry (
    device STRING,
    pressure DOUBLE,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'vedette', 'category' = 'iot', 'service' = 'mqtt');

CREATE VIEW readings AS SELECT device, ts, pressure FROM telemetry WHERE pressure IS NOT NULL;

INSERT INTO alerts
SELECT *
FROM readings MATCH_RECOGNIZE (
    PARTITION BY device
    ORDER BY ts
    MEASURES
        FIRST(base.pressure) AS first_pressure,
        LAST(peak.pressure) AS last_pressure,
        FIRST(base.ts) AS since
    ONE ROW PER MATCH
    AFTER MATCH SKIP PAST LAST ROW
    PATTERN (base rise{4} peak) WITHIN INTERVAL '10' MINUTE
    DEFINE
        rise AS (LAST(rise.pressure, 1) IS NULL AND rise.pressure > base.pressure) OR rise.pressure > LAST(rise.pressure, 1),
        peak AS peak.pressure > LAST(rise.pressure) AND peak.pressure > 1.5 * base.pressure
);
