-- title: Login after Failed Ones
-- id: 5ccc95f0-59f6-5ade-80d6-e847ef3d76af
-- level: high
-- tags: attack.credential-access, attack.t1110.001, attack.initial-access, attack.t1078
-- description: After five or more failed logins of one user, none of them successful, one succeeded within ten minutes.

CREATE TABLE auth (
    hostname STRING,
    pid STRING,
    `user` STRING,
    src_ip STRING,
    message STRING,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'vedette', 'product' = 'linux', 'service' = 'sshd', 'watermark' = 'selected');

CREATE VIEW logins AS
SELECT hostname, `user`, src_ip, ts, message LIKE 'Accepted password for %' AS accepted
FROM auth
WHERE message LIKE 'Failed password for %' OR message LIKE 'Accepted password for %';

INSERT INTO alerts
SELECT *
FROM logins MATCH_RECOGNIZE (
    PARTITION BY hostname, `user`
    ORDER BY ts
    MEASURES
        LAST(success.src_ip) AS src_ip,
        COUNT(failure.src_ip) AS failures,
        FIRST(failure.ts) AS since
    ONE ROW PER MATCH
    AFTER MATCH SKIP PAST LAST ROW
    PATTERN (failure{5,} success) WITHIN INTERVAL '10' MINUTE
    DEFINE
        failure AS NOT failure.accepted,
        success AS success.accepted
);
