-- title: Session Open for More than Eight Hours
-- id: cb11edc1-6e24-5db7-b010-f491fb5254b2
-- level: low
-- tags: attack.persistence, attack.t1078, attack.lateral-movement, attack.t1021.004
-- description: A session over SSH was opened and not closed within eight hours.

CREATE TABLE auth (
    hostname STRING,
    pid STRING,
    `user` STRING,
    src_ip STRING,
    message STRING,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'vedette', 'product' = 'linux', 'service' = 'sshd', 'watermark' = 'selected');

CREATE VIEW opened AS SELECT * FROM auth WHERE message LIKE '%session opened for user %';
CREATE VIEW closed AS SELECT * FROM auth WHERE message LIKE '%session closed for user %';

INSERT INTO alerts
SELECT o.hostname, o.`user`, o.pid, o.ts AS since
FROM opened AS o
LEFT JOIN closed AS c
    ON o.hostname = c.hostname AND o.pid = c.pid AND o.`user` = c.`user`
    AND c.ts BETWEEN o.ts AND o.ts + INTERVAL '8' HOUR
WHERE c.pid IS NULL;
