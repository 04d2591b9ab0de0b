-- title: Large Share of Server Errors
-- id: 96fa334c-d607-542e-83f1-d34c089a6e2f
-- level: medium
-- tags: attack.impact, attack.t1499, attack.initial-access, attack.t1190
-- description: Of at least 50 requests within five minutes more than 30 % ended in an error of the server.

CREATE TABLE requests (
    `c-ip` STRING,
    `cs-uri-stem` STRING,
    `sc-status` INT,
    host STRING METADATA,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'vedette', 'category' = 'webserver');

INSERT INTO alerts
SELECT host, window_start, window_end, COUNT(*) AS requests,
    SUM(CASE WHEN `sc-status` >= 500 THEN 1 ELSE 0 END) AS errors
FROM TABLE(TUMBLE(TABLE requests, DESCRIPTOR(ts), INTERVAL '5' MINUTE))
GROUP BY window_start, window_end, host
HAVING COUNT(*) >= 50 AND SUM(CASE WHEN `sc-status` >= 500 THEN 1 ELSE 0 END) * 10 > COUNT(*) * 3;
