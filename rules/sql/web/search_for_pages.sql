-- title: Client Asks for Many Pages That Are Not There
-- id: 0ced3fe4-1a62-53e6-8779-c1465147a9d6
-- level: medium
-- tags: attack.reconnaissance, attack.t1595.003
-- description: A client asked for more than 30 different pages that are not there within five minutes; said each minute from then on.

CREATE TABLE requests (
    `c-ip` STRING,
    `cs-uri-stem` STRING,
    `sc-status` INT,
    host STRING METADATA,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'vedette', 'category' = 'webserver', 'watermark' = 'selected');

INSERT INTO alerts
SELECT `c-ip` AS src_ip, window_start, window_end, COUNT(DISTINCT `cs-uri-stem`) AS pages
FROM TABLE(CUMULATE(TABLE requests, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE))
WHERE `sc-status` = 404
GROUP BY window_start, window_end, `c-ip`
HAVING COUNT(DISTINCT `cs-uri-stem`) > 30;
