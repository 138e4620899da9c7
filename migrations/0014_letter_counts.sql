-- Counting dead letters without writing them once more. Each letter gets its cause when it is
-- written, and notes in the same transaction what there is to count; the fold adds the notes
-- up and removes them. Before, the fold looked for letters that said something else than what
-- was counted of them and wrote that into each, which cost an entry in every index.
--
-- Triggers, since the release before writes letters too and knows nothing of the notes. Its
-- fold finds nothing to do: `counted_status` and `counted_failures` are kept at what the letter
-- says. Letters that it had not counted yet are found by them once more, and noted.
--
-- `dead_letters` itself comes last: what holds its lock ends with the transaction.

-- What is to be added to the counts of causes. Each change of a letter is a note that takes it
-- from where it was counted, where it was, and one that counts it where it is now. A note is a
-- row of its own: who fails a job waits for nobody.
create table dead_letter_counts (
    count_id bigint generated always as identity primary key,
    letter_id uuid not null,
    n smallint not null check (n in (-1, 1)),
    -- By its own message; where that is one too many, it counts as one of the others.
    cause_id uuid not null,
    status text not null,
    queue_name text not null,
    -- Empty for messages that could not be read.
    job_type text not null,
    error_code text not null,
    -- Null where n is -1, like what follows but the time of the note.
    error_class text,
    error_message text,
    first_seen timestamptz,
    last_failed_at timestamptz,
    noted_at timestamptz not null default now()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

create function tenure_letter_cause() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' or new.cause_id is null or old.failures is distinct from old.counted_failures
        or (old.queue_name, old.job_type, old.error_code, old.error_message)
            is distinct from (new.queue_name, new.job_type, new.error_code, new.error_message) then
        new.cause_id := tenure_cause(new.queue_name, new.job_type, new.error_code, new.error_message);
    end if;
    new.counted_status := new.status;
    new.counted_failures := new.failures;
    return new;
end
$$;

create function tenure_letter_counts() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' and old.counted_status is not null then
        insert into dead_letter_counts (letter_id, n, cause_id, status, queue_name, job_type, error_code)
        values (old.id, -1, old.cause_id, old.counted_status, old.queue_name, coalesce(old.job_type, ''), old.error_code);
    end if;
    insert into dead_letter_counts (letter_id, n, cause_id, status, queue_name, job_type, error_code, error_class,
        error_message, first_seen, last_failed_at)
    values (new.id, 1, new.cause_id, new.status, new.queue_name, coalesce(new.job_type, ''), new.error_code,
        new.error_class, new.error_message,
        case when new.failures = 1 then new.first_failed_at else new.last_failed_at end, new.last_failed_at);
    return null;
end
$$;

-- What an insert proposes may turn out to be an update, so only what is there is noted: after it.
create trigger dead_letters_insert_cause before insert on dead_letters
    for each row execute function tenure_letter_cause();
create trigger dead_letters_insert_counts after insert on dead_letters
    for each row execute function tenure_letter_counts();
create trigger dead_letters_update_cause before update on dead_letters for each row
    when ((old.status, old.failures, old.queue_name, old.job_type, old.error_code, old.error_message)
        is distinct from (new.status, new.failures, new.queue_name, new.job_type, new.error_code, new.error_message))
    execute function tenure_letter_cause();
create trigger dead_letters_update_counts after update on dead_letters for each row
    when ((old.status, old.failures, old.queue_name, old.job_type, old.error_code, old.error_message)
        is distinct from (new.status, new.failures, new.queue_name, new.job_type, new.error_code, new.error_message))
    execute function tenure_letter_counts();

update schema_info set version = 14;
