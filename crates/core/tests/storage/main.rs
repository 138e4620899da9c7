//! The storage on a real PostgreSQL, with a database for each test.

mod datasets;
mod dead_letters;
mod files;
mod import_prune;
mod import_tables;
mod import_world;
mod imports;
mod migrate;
mod object_store;
mod retention;
mod statements;
mod workers;
