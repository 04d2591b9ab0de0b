-- title: One Address Tries Many Users
-- id: bbf48cd0-8053-51e7-8da3-5f5e05513fd1
-- level: high
-- tags: attack.credential-access, attack.t1110.003
-- description: One address failed to log in as more than ten different users within ten minutes.

CREATE TABLE auth (
    hostname STRING,
    pid STRING,
    `user` STRING,
    src_ip STRING,
    message STRING,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'vedette', 'product' = 'linux', 'service' = 'sshd', 'watermark' = 'selected');

INSERT INTO alerts
SELECT src_ip, window_start, window_end, COUNT(DISTINCT `user`) AS users, COUNT(*) AS attempts
FROM TABLE(HOP(TABLE auth, DESCRIPTOR(ts), INTERVAL '5' MINUTE, INTERVAL '10' MINUTE))
WHERE message LIKE 'Failed password for %' AND src_ip IS NOT NULL
GROUP BY window_start, window_end, src_ip
HAVING COUNT(DISTINCT `user`) > 10;
