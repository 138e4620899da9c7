-- What single users may do where it differs from the configuration; null: it does not.

create table user_limits (
    user_id text primary key,
    max_jobs bigint check (max_jobs >= 0),
    submits_per_second double precision check (submits_per_second >= 0),
    submit_burst bigint check (submit_burst >= 0),
    weight int check (weight between 1 and 100),
    updated_by text,
    updated_at timestamptz not null default now()
);
create index user_limits_changed on user_limits (updated_at);

update schema_info set version = 11;
