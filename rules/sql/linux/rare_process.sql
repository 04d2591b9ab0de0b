-- title: Program Run Once a Day from an Unusual Folder
-- id: bcf3354e-ba25-5431-a2a8-fed273ff0fdb
-- level: low
-- tags: attack.execution, attack.t1059, attack.t1204.002
-- description: A program outside the system's folders ran once or twice on a host within a day, while programs that belong there run again and again.

CREATE TABLE processes (
    Computer STRING,
    Image STRING,
    `User` STRING,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '60' SECOND
) WITH ('connector' = 'vedette', 'product' = 'linux', 'category' = 'process_creation', 'watermark' = 'selected');

INSERT INTO alerts
SELECT Computer AS host, Image, MIN(`User`) AS `user`, window_start, window_end, COUNT(*) AS runs
FROM TABLE(TUMBLE(TABLE processes, DESCRIPTOR(ts), INTERVAL '1' DAY))
WHERE NOT (Image LIKE '/usr/%' OR Image LIKE '/bin/%' OR Image LIKE '/sbin/%' OR Image LIKE '/lib/%')
GROUP BY window_start, window_end, Computer, Image
HAVING COUNT(*) <= 2;
