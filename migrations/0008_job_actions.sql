-- What operators did to jobs, and for how long the runs of a history were held.

-- One row for each act, written in its statement. Kept when the job is pruned.
create table job_actions (
    action_id uuid primary key,
    -- Null where many were meant: `before` has the filter, `after` what came of it.
    job_id uuid,
    action text not null check (action ~ '^[a-z_]{1,64}$'),
    -- Who did it.
    actor text not null,
    -- Whose job it was; null: everybody's.
    user_id text,
    at timestamptz not null default now(),
    reason text,
    before jsonb not null,
    after jsonb not null
);
create index job_actions_job on job_actions (job_id, at) where job_id is not null;

-- When the run that an entry ended was claimed, by the database's clock.
alter table job_history add column started_at timestamptz;

update schema_info set version = 8;
