-- The JSON Schema that a job type's payloads are checked against at submit, and the one
-- that `migrate` put there last: where the two differ, an operator has decided.
alter table job_types
    add column payload_schema text,
    add column payload_schema_shipped text;

update schema_info set version = 5;
