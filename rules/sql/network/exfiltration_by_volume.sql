-- title: Much Data Sent to One Public Address
-- id: a279ae4b-3e02-598d-85c2-4a930cf759d9
-- level: high
-- tags: attack.exfiltration, attack.t1048, attack.t1567
-- description: A host sent more than a gigabyte to one public address within an hour, over at least ten connections of any size.

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
SELECT `id.orig_h` AS src_ip, `id.resp_h` AS dst_ip, window_start, window_end,
    SUM(orig_bytes) AS bytes_sent, COUNT(*) AS `connections`
FROM TABLE(TUMBLE(TABLE `connections`, DESCRIPTOR(ts), INTERVAL '1' HOUR))
WHERE orig_bytes > 0 AND NOT IP_IS_PRIVATE(`id.resp_h`)
GROUP BY window_start, window_end, `id.orig_h`, `id.resp_h`
HAVING SUM(orig_bytes) > 1000000000 AND COUNT(*) >= 10;
