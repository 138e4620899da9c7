-- Imports by data set: whose rows are in which set, and from when on they are seen.

-- A named collection of imported rows. It is seen from the first import on that has ended
-- with success; what those have brought is counted here, so that a list adds nothing up.
create table datasets (
    dataset_id uuid primary key,
    user_id text not null,
    -- Compared byte by byte, so that lists have one order on every server.
    name text collate "C" not null,
    rows bigint not null default 0 check (rows >= 0),
    imports int not null default 0 check (imports >= 0),
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    unique (user_id, name)
);

-- One import job that stores rows. Its rows are part of the data set while it is `done`;
-- those of a `running` or `superseded` one are not seen.
create table imports (
    job_id uuid primary key,
    user_id text not null,
    dataset_id uuid not null references datasets (dataset_id),
    file_id uuid not null,
    status text not null default 'running' check (status in ('running', 'done', 'superseded')),
    rows_stored bigint not null default 0,
    created_at timestamptz not null default now(),
    finished_at timestamptz
);
create index imports_dataset on imports (dataset_id, status, job_id);

-- The values of `unique` columns that an import has stored so far: in the database, so that
-- the worker's memory does not grow with the file. Removed when the import has ended.
create table import_unique (
    job_id uuid not null,
    column_no smallint not null,
    digest bytea not null,
    line_no bigint not null,
    primary key (job_id, column_no, digest)
);

-- The rejected record as it stands in the file.
alter table import_rejects add column original text;
-- A report counts rejects by reason and column, without reading their records.
create index import_rejects_groups on import_rejects (job_id, reason, column_name);

update schema_info set version = 2;
