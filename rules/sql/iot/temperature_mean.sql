-- title: Mean Temperature of a Device Too High
-- id: 2b2c1a32-44ff-5267-8308-70a6b92ffb4f
-- level: high
-- tags: attack.impact, attack.t0831
-- description: The mean of a device's readings within a minute is above 80 degrees.

CREATE TABLE telemetry (
    device STRING,
    temperature DOUBLE,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'vedette', 'category' = 'iot', 'service' = 'mqtt');

INSERT INTO alerts
SELECT device, window_start, window_end, ROUND(AVG(temperature), 1) AS mean, MAX(temperature) AS highest, COUNT(*) AS readings
FROM TABLE(TUMBLE(TABLE telemetry, DESCRIPTOR(ts), INTERVAL '1' MINUTE))
WHERE temperature IS NOT NULL
GROUP BY window_start, window_end, device
HAVING AVG(temperature) > 80 AND COUNT(*) >= 3;
