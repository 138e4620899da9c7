-- What is kept of failures. The tables with short queues first: what holds the lock of
-- `dead_letters` ends with the transaction. All of it is null for what the release before
-- writes.

-- The state in which the job of a key ended, from the moment on when retention has removed
-- the job: nothing else knows it then.
alter table job_dedupe add column ended text;

-- Whether a retry could have helped after the error of a run.
alter table job_history add column error_class text;

-- What a message that could not be read had beside its body: properties and headers.
alter table dead_letters add column message_properties jsonb;

update schema_info set version = 13;
