-- When a dispatcher last saw a backlog: whichever ticks next knows whether it is a new one.
alter table lanes add column busy_at timestamptz not null default '-infinity';

update schema_info set version = 16;
