#!/bin/bash
exec $JOB_WRAP sqlite3 :memory: "
create table t(id integer primary key, k int, name text, note text);
with recursive c(i) as (values(1) union all select i+1 from c where i < 900000)
    insert into t select i, (i * 2654435761) % 1000003, 'customer ' || ((i * 7919) % 100003),
    'order placed on day ' || (i % 365) || ' state ' || (i % 7) || ' comment none' from c;
create index k on t(k); create index n on t(name);
update t set note = note || ' changed' where k % 10 = 3; delete from t where k % 17 = 5;
select 'sqlite', count(*), sum(k), sum(length(note)),
    (select sum(length(note)) from t where name between 'customer 5' and 'customer 7'),
    (select group_concat(id) from (select id from t order by name, id limit 5 offset 300000)),
    (select sum(t.id * b.k % 1009) from t join t b on b.k = (t.k * 31) % 1000003
        where t.id % 3 = 0) from t;"
