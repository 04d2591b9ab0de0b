-- title: Long Run of Commands as Root
-- id: 295bd283-7099-52ed-9174-99ad34ea6ccc
-- level: low
-- tags: attack.privilege-escalation, attack.t1548.003
-- description: A user ran at least 20 commands as root by sudo with less than two minutes between them.

CREATE TABLE commands (
    hostname STRING,
    `user` STRING,
    target_user STRING,
    command STRING,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'vedette', 'product' = 'linux', 'service' = 'sudo');

INSERT INTO alerts
SELECT hostname, `user`, window_start, window_end, COUNT(*) AS commands, COUNT(DISTINCT command) AS different
FROM TABLE(SESSION(TABLE commands PARTITION BY (hostname, `user`), DESCRIPTOR(ts), INTERVAL '2' MINUTE))
WHERE target_user = 'root' AND command IS NOT NULL
GROUP BY window_start, window_end, hostname, `user`
HAVING COUNT(*) >= 20;
