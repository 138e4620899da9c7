-- Lines: jobs of one queue with the same `ordering_key`; the first of them, by `order_seq`,
-- have their turn, and the others are held. Without a limit that is the very first (an
-- ordering key), with one so many (a concurrency key). The two kinds of key are told apart
-- by their first two characters, `o:` and `c:`. A job of a limited line that waits for a
-- later time has no place in it: its `order_seq` is null.

alter table jobs
    add column line_limit int,
    -- Whether the jobs behind it wait after it has failed.
    add column line_block boolean not null default false;

alter table job_types
    add column ordering_policy text not null default 'continue' check (ordering_policy in ('continue', 'block')),
    add column max_concurrency int not null default 1 check (max_concurrency between 1 and 10000);

-- Failed jobs that block their line, until they are replayed or their letter is closed.
create table blocked_lines (
    queue text not null,
    ordering_key text not null,
    order_seq bigint not null,
    job_id uuid not null unique,
    primary key (queue, ordering_key, order_seq)
);

update schema_info set version = 12;
