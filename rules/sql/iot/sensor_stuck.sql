-- title: Sensor Stuck at One Value
-- id: 1896ed5b-5618-59b3-bde7-dc7d83541f05
-- level: medium
-- tags: attack.inhibit-response-function, attack.t0838, attack.t0832
-- description: A sensor that reports often gave one and the same value for half an hour: it is broken, frozen, or replayed.

CREATE TABLE telemetry (
    device STRING,
    pressure DOUBLE,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'vedette', 'category' = 'iot', 'service' = 'mqtt');

INSERT INTO alerts
SELECT device, window_start, window_end, MIN(pressure) AS pressure, COUNT(*) AS readings
FROM TABLE(HOP(TABLE telemetry, DESCRIPTOR(ts), INTERVAL '10' MINUTE, INTERVAL '30' MINUTE))
WHERE pressure IS NOT NULL
GROUP BY window_start, window_end, device
HAVING COUNT(*) >= 20 AND MIN(pressure) = MAX(pressure);
