-- The JSON Schema that a job type's payloads are checked against at submit.
alter table job_types add column payload_schema text;

update schema_info set version = 5;
