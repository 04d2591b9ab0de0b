-- title: New Account Used within an Hour
-- id: 66af077e-9c24-5bc8-9c77-94a10b256abc
-- level: high
-- tags: attack.persistence, attack.t1136.001, attack.t1078.003
-- description: An account was made and somebody logged in with it over SSH within an hour.

CREATE TABLE auth (
    hostname STRING,
    program STRING,
    `user` STRING,
    src_ip STRING,
    message STRING,
    ts TIMESTAMP_LTZ(3) METADATA FROM 'event_time',
    WATERMARK FOR ts AS ts - INTERVAL '30' SECOND
) WITH ('connector' = 'vedette', 'product' = 'linux', 'service' = 'auth', 'watermark' = 'selected');

CREATE VIEW made AS SELECT hostname, `user`, ts FROM auth WHERE program = 'useradd' AND message LIKE 'new user: name=%';
CREATE VIEW used AS SELECT hostname, `user`, src_ip, ts FROM auth WHERE program = 'sshd' AND message LIKE 'Accepted %';

INSERT INTO alerts
SELECT u.hostname, u.`user`, u.src_ip, m.ts AS made_at, u.ts AS used_at
FROM used AS u
JOIN made AS m
    ON u.hostname = m.hostname AND u.`user` = m.`user`
    AND u.ts BETWEEN m.ts AND m.ts + INTERVAL '1' HOUR;
