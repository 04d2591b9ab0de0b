-- title: Temperature Far from a Device's Last Ten Minutes
-- id: 31c3c534-fe32-5e49-9791-5f2ee78798f3
-- level: medium
-- tags: attack.impact, attack.t0831
-- description: A reading is 15 degrees from the mean of the readings of the ten minutes before, of which there are at least five.

CREATE TABLE telemetry (
    device STRING,
    temperature DOUBLE,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'vedette', 'category' = 'iot', 'service' = 'mqtt');

INSERT INTO alerts
SELECT device, ts, temperature, mean
FROM (
    SELECT device, ts, temperature,
        AVG(temperature) OVER last_minutes AS mean,
        COUNT(temperature) OVER last_minutes AS readings
    FROM telemetry
    WHERE temperature IS NOT NULL
    WINDOW last_minutes AS (
        PARTITION BY device ORDER BY ts RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND CURRENT ROW)
)
WHERE readings > 5 AND ABS(temperature - mean) > 15;
