-- title: Device Fell Silent
-- id: 78e1ec3b-fc52-5583-88f1-b0bf4e4c5513
-- level: medium
-- tags: attack.inhibit-response-function, attack.t0804
-- description: A device that sends heartbeats sent none in the 15 minutes after its last one.

CREATE TABLE telemetry (
    device STRING,
    kind STRING,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'vedette', 'category' = 'iot', 'service' = 'mqtt', 'watermark' = 'selected');

CREATE VIEW heartbeats AS SELECT device, ts FROM telemetry WHERE kind = 'heartbeat';

INSERT INTO alerts
SELECT a.device, a.ts AS last_heartbeat
FROM heartbeats AS a
LEFT JOIN heartbeats AS b
    ON a.device = b.device AND b.ts BETWEEN a.ts + INTERVAL '1' SECOND AND a.ts + INTERVAL '15' MINUTE
WHERE b.device IS NULL;
