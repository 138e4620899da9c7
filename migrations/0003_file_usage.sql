-- What each user's uploads take, so that a quota is checked without adding up; and what the
-- content of a file looks like, whatever its sender calls it.

create table file_usage (
    user_id text primary key,
    files bigint not null default 0 check (files >= 0),
    bytes bigint not null default 0 check (bytes >= 0)
) with (fillfactor = 50);

alter table files add column detected_type text;
create index files_expiry on files (expires_at, file_id) where expires_at is not null;
create index files_job on files (job_id) where job_id is not null;

-- Lists go by time, since not every file's id tells when it was made.
create index files_listed on files (user_id, created_at, file_id);
drop index files_user;

insert into file_usage (user_id, files, bytes)
select user_id, count(*), sum(size_bytes) from files where kind = 'upload' group by user_id;

update schema_info set version = 3;
