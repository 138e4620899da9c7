-- What operators were told, so that any number of sweepers tell it once.
create table alerts (
    kind text not null check (kind ~ '^[a-z_]{1,64}$'),
    -- What it is about: a cause, or everything.
    key text not null,
    raised_at timestamptz not null default now(),
    detail jsonb not null,
    primary key (kind, key)
);

-- How many letters were open, once a minute: growth is seen against it.
create table dead_letter_levels (
    at timestamptz primary key,
    open bigint not null
);

-- New causes are looked for by their time.
create index dead_letter_causes_first on dead_letter_causes (first_failed_at);

update schema_info set version = 9;
