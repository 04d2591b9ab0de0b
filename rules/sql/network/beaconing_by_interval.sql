-- title: Connections at Even Intervals
-- id: da7efdf5-56ca-551a-b5fb-122ab9127cae
-- level: medium
-- tags: attack.command-and-control, attack.t1071, attack.t1573
-- description: A host connected to one public address at least 20 times within an hour, always at nearly the same second of a minute and with nearly as many bytes.

CREATE TABLE `connections` (
    `id.orig_h` STRING,
    `id.resp_h` STRING,
    `id.resp_p` INT,
    orig_bytes BIGINT,
    `_path` STRING,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '60' SECOND
) WITH ('connector' = 'vedette', 'product' = 'zeek', 'service' = 'conn');

INSERT INTO alerts
SELECT `id.orig_h` AS src_ip, `id.resp_h` AS dst_ip, `id.resp_p` AS dst_port, window_start, window_end,
    COUNT(*) AS `connections`, AVG(CAST(orig_bytes AS DOUBLE)) AS mean_bytes
FROM TABLE(TUMBLE(TABLE `connections`, DESCRIPTOR(ts), INTERVAL '1' HOUR))
WHERE NOT IP_IS_PRIVATE(`id.resp_h`)
GROUP BY window_start, window_end, `id.orig_h`, `id.resp_h`, `id.resp_p`
HAVING COUNT(*) BETWEEN 20 AND 120
    AND STDDEV_POP(CAST(EXTRACT(SECOND FROM ts) AS DOUBLE)) < 2
    AND STDDEV_POP(CAST(orig_bytes AS DOUBLE)) < 100;
