-- Lines: jobs of one queue with the same `ordering_key`. An ordering key is a line without a
-- limit: one job after the other. A concurrency key is one with a limit: so many at once. The
-- two are told apart by their first two characters, `o:` and `c:`.
--
-- `order_seq` says where a job stands: below 0 it has its turn; from 0 on it is held, and the
-- lowest is the next; null: it has no place (a job of a limited line that waits for a later
-- time, or has none).

alter table jobs
    add column line_limit int,
    -- Whether the jobs behind it wait after it has failed.
    add column line_block boolean not null default false;

alter table job_types
    add column ordering_policy text not null default 'continue' check (ordering_policy in ('continue', 'block')),
    add column max_concurrency int not null default 1 check (max_concurrency between 1 and 10000);

-- Failed jobs that block their line, until they are replayed or their letter is closed.
create table blocked_lines (
    job_id uuid primary key,
    queue text not null,
    ordering_key text not null
);
create index blocked_lines_line on blocked_lines (queue, ordering_key);

-- Lines in which a place has become free, or that a job has come to: noted in the
-- transaction that did it, and removed by the one that gives the next jobs their turn. Each
-- note is a row of its own: who notes waits for nobody, and who removes notes removes those
-- that it has seen.
create table line_turns (
    note_id bigint generated always as identity primary key,
    queue text not null,
    ordering_key text not null,
    noted_at timestamptz not null default now()
);
create index line_turns_line on line_turns (queue, ordering_key);

update schema_info set version = 12;
