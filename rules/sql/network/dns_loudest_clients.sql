-- title: Client with Many Names below One Domain
-- id: 319500a8-405d-52c0-8cd2-2dd365831382
-- level: medium
-- tags: attack.exfiltration, attack.t1048, attack.command-and-control, attack.t1071.004
-- description: Of all clients, one of the three that asked for the most different long names within ten minutes, and for at least 50.

CREATE TABLE queries (
    `id.orig_h` STRING,
    query STRING,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '60' SECOND
) WITH ('connector' = 'vedette', 'product' = 'zeek', 'service' = 'dns', 'watermark' = 'selected');

INSERT INTO alerts
SELECT src_ip, names, window_start, window_end
FROM (
    SELECT src_ip, names, window_start, window_end,
        ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY names DESC) AS place
    FROM (
        SELECT `id.orig_h` AS src_ip, COUNT(DISTINCT query) AS names, window_start, window_end
        FROM TABLE(TUMBLE(TABLE queries, DESCRIPTOR(ts), INTERVAL '10' MINUTE))
        WHERE CHAR_LENGTH(query) > 30
        GROUP BY window_start, window_end, `id.orig_h`
    )
    WHERE names >= 50
)
WHERE place <= 3;
