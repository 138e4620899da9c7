-- Imports that have failed for good and whose owners are to be told: noted in the transaction
-- that failed them, whoever did, and removed by the one that makes the jobs that tell.

create table failed_imports (
    note_id bigint generated always as identity primary key,
    job_id uuid not null,
    -- How often it has failed for good: 1, and one more after each replay.
    failures int not null,
    error_code text not null,
    error_message text,
    noted_at timestamptz not null default now()
);

create function tenure_failed_import() returns trigger language plpgsql as $$
begin
    insert into failed_imports (job_id, failures, error_code, error_message)
    values (new.job_id, new.failures, new.error_code, new.error_message);
    return null;
end
$$;

create trigger dead_letters_failed_import after insert on dead_letters for each row
    when (new.job_type = 'import_csv' and new.job_id is not null)
    execute function tenure_failed_import();
create trigger dead_letters_failed_import_again after update of failures on dead_letters for each row
    when (new.job_type = 'import_csv' and new.job_id is not null and new.failures > old.failures)
    execute function tenure_failed_import();

update schema_info set version = 15;
